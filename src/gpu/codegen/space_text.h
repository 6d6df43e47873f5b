// SPDX-License-Identifier: Apache-2.0
// The CUDA struct of one tile space, as device/layout/space.cuh asks for it: operands, planes, and
// the epilogue as straight-line code over pairs of columns, one line a step, named after the
// program's values.
#pragma once

#include <string>

#include "gpu/codegen/launch_arguments.h"
#include "gpu/legalise/space_analysis.h"

namespace coda::gpu {

// `keeps_tables` as gemm_emitter.h has it. `name` of the struct, "Space0"; what it reads of the
// kernel's argument is added to `arguments`.
std::string space_text(const ProgramSizes& sizes, const program::TileMap& map,
                       const SpaceAnalysis& analysis, const device::GemmConfig& config,
                       bool keeps_tables, const std::string& name, LaunchArguments& arguments);

}  // namespace coda::gpu
