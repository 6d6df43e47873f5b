// SPDX-License-Identifier: Apache-2.0
// Predicts the memory that a plan's kernels need in addition to its tensors: intermediate results
// of split programs, and attention's workspace. It is derived from the launches and needs no GPU.
#pragma once

#include <cstdint>

#include "coda/backend.h"
#include "gpu/legalise/lower_options.h"

namespace coda::gpu {

// The maximum over the plan steps, which run one after another and share this memory (Session).
int64_t workspace_bytes(const Plan& plan, const DimValues& sizes, const LowerOptions& options,
                        GpuAttention attention);

}  // namespace coda::gpu
