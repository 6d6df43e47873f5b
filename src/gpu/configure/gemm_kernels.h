// SPDX-License-Identifier: Apache-2.0
// Which tile spaces with products go into one kernel: all of one layout and element type that some
// configuration can serve together; else each its own.
#pragma once

#include <variant>
#include <vector>

#include "gpu/configure/choose_config.h"

namespace coda::gpu {

// In the order of their first spaces; or why there is none for a space.
std::variant<std::vector<KernelSpaces>, Refusal> gemm_kernels(const ProgramSizes& sizes,
                                                              const program::TileMap& map);

}  // namespace coda::gpu
