// SPDX-License-Identifier: Apache-2.0
// The list of targets, and the choice of one.
#pragma once

#include <string_view>

#include "gpu/sm80/sm80.h"
#include "gpu/sm90/sm90.h"

namespace coda::gpu {

// By name: "sm90", "sm80", "sm89"; an architecture, with all that its GPUs have: "sm_89", "sm120",
// "compute_80" (PTX); or both: "sm80:sm_90" are sm80's kernels for Hopper. Throws Error for another
// name.
const Target& target_named(std::string_view name);

// The target for a GPU of this compute capability. `name` selects it; if empty, CODA_GPU_TARGET
// does; if that is not set, it is sm90 for 9.0, sm89 for 8.9 and later, and sm80 for others.
// Capability 0.0: no GPU is meant, and the default is sm90. `device`: the GPU's name; if its card
// is known (coda/gpu_card.h), the target has the rates of this card. Does not check that the GPU
// can run the kernels (target_of does).
const Target& target_for(std::string_view name, int major = 0, int minor = 0,
                         std::string_view device = {});

// The target if no GPU is meant.
inline const Target& chosen_target() { return target_for(""); }

}  // namespace coda::gpu
