// SPDX-License-Identifier: Apache-2.0
// A program's way from its steps to kernels as text: the stages of the folders below, in order.
#pragma once

#include <vector>

#include "coda/dim.h"
#include "coda/program.h"
#include "gpu/codegen/kernel_launch.h"
#include "gpu/configure/choose_config.h"

namespace coda::gpu {

// A program as launches in order, mostly one. A program that no kernel holds is split. Throws
// Error, naming the program, what does not fit and the remedy.
std::vector<KernelLaunch> lower(const Program& program, const DimValues& sizes,
                                const LowerOptions& options);

// Of the program's first kernel that has products. A choice that another of its kernels cannot take
// is replaced there by the model's.
std::vector<GemmConfig> legal_choices(const Program& program, const DimValues& sizes,
                                      const LowerOptions& options);

}  // namespace coda::gpu
