// SPDX-License-Identifier: Apache-2.0
// Opaque calls (attention, embedding and their adjoints) as launches of plain, deterministic
// kernels, so that whole models run on a GPU; device/attention.cuh and device/embedding.cuh say
// what they are not.
#pragma once

#include <span>
#include <vector>

#include "coda/plan.h"
#include "hopper/kernel_launch.h"

namespace coda::hopper {

// `tensors`: declarations of the inputs, then of the outputs; a launch's pointers index them, as
// LowerOptions::row_strides does. Throws Error for an unknown function, attributes that are missing
// or do not fit the tensors, or a head size above 256.
std::vector<KernelLaunch> lower_opaque(const OpaqueCall& call, std::span<const TensorDecl> tensors,
                                       const DimValues& sizes, const LowerOptions& options);

}  // namespace coda::hopper
