// SPDX-License-Identifier: Apache-2.0
// The list of targets, and which of them kernels are made for.
#pragma once

#include <string_view>

#include "gpu/sm80/sm80.h"
#include "gpu/sm90/sm90.h"

namespace coda::gpu {

// "sm90", "sm80", or sm80 compiled for one architecture: "sm_89", "compute_80" (PTX). Throws Error
// for another name.
const Target& target_named(std::string_view name);

// The target of that name; if the name is empty: the one that CODA_GPU_TARGET names; if this is not
// set: sm90 for a GPU of compute capability 9.0, sm80 for others. In the form for a GPU of the
// capability; 0.0: for the GPUs that the target is made for, sm90 if there is no name. Does not
// check that such a GPU runs its kernels.
const Target& target_for(std::string_view name, int major = 0, int minor = 0);

// Without a GPU in mind.
inline const Target& chosen_target() { return target_for(""); }

}  // namespace coda::gpu
