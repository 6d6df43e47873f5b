// SPDX-License-Identifier: Apache-2.0
// One kernel for tile spaces with products: its text, and what its launch passes.
#pragma once

#include "hopper/codegen/kernel_launch.h"
#include "hopper/configure/choose_config.h"

namespace coda::hopper {

// `choice` is legal for the kernel.
KernelLaunch emit_gemm_kernel(const ProgramSizes& sizes, const program::TileMap& map,
                              const KernelSpaces& kernel, const GemmConfig& choice);

}  // namespace coda::hopper
