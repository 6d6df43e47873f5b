// SPDX-License-Identifier: Apache-2.0
// Groups tile spaces with GEMMs into kernels: spaces of one layout and element type share a kernel
// if some configuration supports all of them; otherwise each gets its own.
#pragma once

#include <variant>
#include <vector>

#include "gpu/configure/choose_config.h"

namespace coda::gpu {

// The kernels in the order of their first spaces, or the reason why a space fits into no kernel.
std::variant<std::vector<KernelSpaces>, Refusal> gemm_kernels(const ProgramSizes& sizes,
                                                              const program::TileMap& map);

}  // namespace coda::gpu
