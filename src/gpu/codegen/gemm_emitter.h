// SPDX-License-Identifier: Apache-2.0
// One kernel for tile spaces with products: its text, and what its launch passes.
#pragma once

#include "gpu/codegen/kernel_launch.h"
#include "gpu/configure/choose_config.h"

namespace coda::gpu {

// `choice` is legal for the kernel. Where a cooperative tile's sub-tiles beside each other all read
// the same tables, `keeps_tables` loads these once, ahead of all of them, and keeps them in
// registers.
KernelLaunch emit_gemm_kernel(const ProgramSizes& sizes, const program::TileMap& map,
                              const KernelSpaces& kernel, const GemmConfig& choice,
                              bool keeps_tables);

}  // namespace coda::gpu
