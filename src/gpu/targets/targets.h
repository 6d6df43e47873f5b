// SPDX-License-Identifier: Apache-2.0
// The list of targets, and the choice of one.
#pragma once

#include <string_view>

#include "gpu/sm80/sm80.h"
#include "gpu/sm90/sm90.h"

namespace coda::gpu {

// "sm90", "sm80", or sm80 compiled for one architecture: "sm_89", "compute_80" (PTX). Throws Error
// for another name.
const Target& target_named(std::string_view name);

// The target for a GPU of this compute capability. `name` selects it; if empty, CODA_GPU_TARGET
// does; if that is not set, it is sm90 for 9.0 and sm80 for others. Capability 0.0: no GPU is
// meant, and the default is sm90. Does not check that the GPU can run the kernels (target_of does).
const Target& target_for(std::string_view name, int major = 0, int minor = 0);

// The target if no GPU is meant.
inline const Target& chosen_target() { return target_for(""); }

}  // namespace coda::gpu
