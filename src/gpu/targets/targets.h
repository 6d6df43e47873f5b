// SPDX-License-Identifier: Apache-2.0
// The targets that there are, and which one this process makes kernels for.
#pragma once

#include "gpu/sm80/sm80.h"
#include "gpu/sm90/sm90.h"

namespace coda::gpu {

// By name, for GPUs of its own capability: "sm90", "sm80". Throws Error for another name.
const Target& target_named(std::string_view name);

// The one that CODA_GPU_TARGET names, else sm90.
const Target& chosen_target();
// The same in the form that a GPU of this compute capability takes: newer ones take PTX.
const Target& chosen_target(int major);

}  // namespace coda::gpu
