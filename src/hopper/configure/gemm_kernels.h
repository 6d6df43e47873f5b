// SPDX-License-Identifier: Apache-2.0
// Which tile spaces with products go into one kernel: all of one layout and element type that some
// configuration can serve together; else each its own.
#pragma once

#include "hopper/configure/choose_config.h"

namespace coda::hopper {

// In the order of their first spaces. Throws Error where a space cannot be made on a GPU at all.
std::vector<KernelSpaces> gemm_kernels(const ProgramSizes& sizes, const program::TileMap& map);

}  // namespace coda::hopper
