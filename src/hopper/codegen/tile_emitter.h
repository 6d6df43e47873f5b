// SPDX-License-Identifier: Apache-2.0
// Kernels of tile spaces without a product: their tiles are loaded from memory, or made of vectors.
#pragma once

#include <vector>

#include "hopper/codegen/kernel_launch.h"
#include "hopper/legalise/program_sizes.h"

namespace coda::hopper {

// One launch for the tile spaces in `spaces`, by their number in tile_spaces(). Throws Error,
// naming the program and step, if something does not fit.
KernelLaunch lower_tile_spaces(const ProgramSizes& sizes, const std::vector<int>& spaces);

}  // namespace coda::hopper
