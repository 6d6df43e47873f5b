// SPDX-License-Identifier: Apache-2.0
// The slow way that takes everything: single steps from memory to memory, where neither tensor
// cores nor a warp's columns serve a step. A program that has such a step among others is split
// (legalise.h) until it stands alone.
#pragma once

#include "coda/program.h"
#include "program/tile_map.h"

namespace coda::gpu {

// Whether a product fills the accumulators of the space.
bool has_gemm(const Program& program, const TileSpace& space);

// Whether a warp of a kernel without a product holds groups of so many base columns whole.
bool is_group_of_warp(int64_t base_columns);

// Whether tensor cores do not multiply what this product reads: its operands must be bf16, or f16,
// all of them.
bool is_plain_product(const Program& program, const Step& product);

// Whether a tile space is one such product that is only stored, or one sum over groups that no warp
// holds, of what is only loaded, that is only stored.
bool is_plain(const Program& program, const TileSpace& space, const DimValues& sizes);

}  // namespace coda::gpu
