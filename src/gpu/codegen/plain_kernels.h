// SPDX-License-Identifier: Apache-2.0
// Kernels of the spaces that neither tensor cores nor a warp's columns serve (plain_spaces.h).
#pragma once

#include "gpu/codegen/kernel_launch.h"
#include "gpu/legalise/program_sizes.h"
#include "program/tile_map.h"

namespace coda::gpu {

// A kernel for a space that is_plain(). The program has names for kernels (kernel_names.h).
KernelLaunch lower_plain(const ProgramSizes& sizes, const TileSpace& space);

}  // namespace coda::gpu
