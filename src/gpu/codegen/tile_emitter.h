// SPDX-License-Identifier: Apache-2.0
// Emits kernels for tile spaces without a GEMM, whose tiles are loaded from memory or computed from
// vectors.
#pragma once

#include <vector>

#include "gpu/codegen/kernel_launch.h"
#include "gpu/legalise/program_sizes.h"

namespace coda::gpu {

// One launch for the tile spaces in `spaces` (indices into tile_spaces()). Throws Error, naming the
// program and step, if something does not fit.
KernelLaunch lower_tile_spaces(const ProgramSizes& sizes, const std::vector<int>& spaces);

}  // namespace coda::gpu
