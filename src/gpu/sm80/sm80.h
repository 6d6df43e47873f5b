// SPDX-License-Identifier: Apache-2.0
// The target for GPUs since Ampere. Its kernels use only instructions that all these GPUs have:
// mma.sync, ldmatrix, cp.async. On newer GPUs the kernels are PTX that the driver compiles. Their
// speed has not been measured.
#pragma once

#include "gpu/target/target.h"

namespace coda::gpu {

// Compiles to cubins for GPUs of compute capability 8.
const Target& sm80();
// Compiles to PTX for newer GPUs. How many registers spill is then not known.
const Target& sm80_ptx();

}  // namespace coda::gpu
