// SPDX-License-Identifier: Apache-2.0
// Emits the CUDA struct of one tile space, with the interface that device/layout/space.cuh
// describes: operands, planes, and the epilogue as straight-line code over pairs of columns, with
// one line per step and the program's names.
#pragma once

#include <string>

#include "gpu/codegen/launch_arguments.h"
#include "gpu/legalise/space_analysis.h"

namespace coda::gpu {

// `keeps_tables`: see gemm_emitter.h. `name`: of the struct, "Space0". The fields of the kernel's
// argument that the struct reads are added to `arguments`.
std::string space_text(const ProgramSizes& sizes, const program::TileMap& map,
                       const SpaceAnalysis& analysis, const device::GemmConfig& config,
                       bool keeps_tables, const std::string& name, LaunchArguments& arguments);

}  // namespace coda::gpu
