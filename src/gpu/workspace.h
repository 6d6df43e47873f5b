// SPDX-License-Identifier: Apache-2.0
// Memory that a plan's kernels use beside its tensors: what the parts of a program that was split
// pass on, and what attention keeps. Known from the kernels' launches, without a GPU.
#pragma once

#include <cstdint>

#include "coda/backend.h"
#include "gpu/legalise/lower_options.h"

namespace coda::gpu {

// The most of one step's: steps run one after another and share it (Session).
int64_t workspace_bytes(const Plan& plan, const DimValues& sizes, const LowerOptions& options,
                        GpuAttention attention);

}  // namespace coda::gpu
