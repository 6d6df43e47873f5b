// SPDX-License-Identifier: Apache-2.0
// Emits kernels for tile spaces that neither tensor cores nor a warp can compute (plain_spaces.h).
#pragma once

#include "gpu/codegen/kernel_launch.h"
#include "gpu/legalise/program_sizes.h"
#include "program/tile_map.h"

namespace coda::gpu {

// For a space with is_plain(). The program must have canonical names (kernel_names.h).
KernelLaunch lower_plain(const ProgramSizes& sizes, const TileSpace& space);

}  // namespace coda::gpu
