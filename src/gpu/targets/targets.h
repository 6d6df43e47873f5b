// SPDX-License-Identifier: Apache-2.0
// The list of targets, and the target that this process makes kernels for.
#pragma once

#include "gpu/sm80/sm80.h"
#include "gpu/sm90/sm90.h"

namespace coda::gpu {

// "sm90" or "sm80"; the target for GPUs of exactly that capability. Throws Error for another name.
const Target& target_named(std::string_view name);

// The target that CODA_GPU_TARGET names; sm90 if it is not set.
const Target& chosen_target();
// The chosen target, in the form for a GPU of this compute capability: PTX if the GPU is newer.
const Target& chosen_target(int major);

}  // namespace coda::gpu
