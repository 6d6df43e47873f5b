// SPDX-License-Identifier: Apache-2.0
// The target for GPUs since Ampere. Its kernels use only instructions that all these GPUs have:
// mma.sync, ldmatrix, cp.async. They are compiled for the GPU's own architecture, with the shared
// memory that it has. For a GPU that the compiler does not know they are PTX, which the driver
// compiles; how many registers spill is then not known. Their speed has not been measured.
#pragma once

#include <span>

#include "gpu/target/target.h"

namespace coda::gpu {

// One for each architecture, by compute capability; the last one is PTX for any.
std::span<const Target> sm80_targets();

const Target& sm80();      // for compute capability 8.0
const Target& sm80_ptx();  // PTX
// The one for GPUs of exactly this capability; else PTX.
const Target& sm80_for(int major, int minor);

}  // namespace coda::gpu
