// SPDX-License-Identifier: Apache-2.0
// Emits one kernel for tile spaces with GEMMs: its text and its launch.
#pragma once

#include "gpu/codegen/kernel_launch.h"
#include "gpu/configure/choose_config.h"

namespace coda::gpu {

// `choice` must be legal for the kernel. With `keeps_tables`, tables that all sub-tiles in a row of
// a cooperative tile read are loaded once before them and kept in registers.
KernelLaunch emit_gemm_kernel(const ProgramSizes& sizes, const program::TileMap& map,
                              const KernelSpaces& kernel, const GemmConfig& choice,
                              bool keeps_tables);

}  // namespace coda::gpu
