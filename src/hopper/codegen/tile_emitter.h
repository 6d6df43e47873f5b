// SPDX-License-Identifier: Apache-2.0
// Kernels of tile spaces without a product: their tiles are loaded from memory, or made of vectors.
#pragma once

#include <vector>

#include "coda/dim.h"
#include "coda/program.h"
#include "hopper/codegen/kernel_launch.h"
#include "hopper/legalise/lower_options.h"

namespace coda::hopper {

// One launch for all the tile spaces of a program without products, or for those in `spaces` (by
// their number in tile_spaces()) of one that has some. Throws Error, naming the program and step,
// if something does not fit.
std::vector<KernelLaunch> lower_tiles(const Program& program, const DimValues& sizes,
                                      const LowerOptions& options);
KernelLaunch lower_tile_spaces(const Program& program, const std::vector<int>& spaces,
                               const DimValues& sizes, const LowerOptions& options);

}  // namespace coda::hopper
