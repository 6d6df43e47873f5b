// SPDX-License-Identifier: Apache-2.0
// The slow way that takes everything: single steps from memory to memory, where neither tensor
// cores nor a warp's columns serve a step. A program that has such a step among others is split
// (fit_program.h) until it stands alone.
#pragma once

#include "hopper/program_sizes.h"
#include "program/tile_map.h"

namespace coda::hopper {

// Whether a warp of a kernel without a product holds groups of so many base columns whole.
bool is_group_of_warp(int64_t base_columns);

// Whether tensor cores do not multiply what this product reads: its operands must be bf16, or f16,
// all of them.
bool is_plain_product(const Program& program, const Step& product);

// Whether a tile space is one such product that is only stored, or one sum over groups that no warp
// holds, of what is only loaded, that is only stored.
bool is_plain(const Program& program, const TileSpace& space, const DimValues& sizes);

// A kernel for a space that is_plain(). `program` has names for kernels (kernel_names.h).
KernelLaunch lower_plain(const Program& program, const TileSpace& space, const DimValues& sizes,
                         const LowerOptions& options);

}  // namespace coda::hopper
