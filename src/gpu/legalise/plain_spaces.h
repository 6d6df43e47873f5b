// SPDX-License-Identifier: Apache-2.0
// Decides which steps need the slow general path: single steps from memory to memory, for steps
// that neither tensor cores nor a warp can compute. A program with such a step is split
// (legalise.h) until the step is alone.
#pragma once

#include "coda/program.h"
#include "program/tile_map.h"

namespace coda::gpu {

// Whether the tile space has a GEMM.
bool has_gemm(const Program& program, const TileSpace& space);

// Whether a warp of a kernel without a GEMM can hold whole groups of this many base columns.
bool is_group_of_warp(int64_t base_columns);

// Whether tensor cores cannot multiply the GEMM's operands. They support bf16 by bf16, f16 by f16,
// and 8-bit operands that are stored with K along their rows; all segments must agree.
bool is_plain_product(const Program& program, const Step& product);

// Whether a tile space consists only of one such GEMM and its store, or of one sum over groups too
// large for a warp, with its loads and its store.
bool is_plain(const Program& program, const TileSpace& space, const DimValues& sizes);

}  // namespace coda::gpu
