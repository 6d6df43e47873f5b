// SPDX-License-Identifier: Apache-2.0
// GPUs since Ampere, by what they all have: mma.sync, ldmatrix, cp.async. Its kernels also run on
// newer GPUs, as PTX that the driver compiles. Their speed was not measured.
#pragma once

#include "gpu/target/target.h"

namespace coda::gpu {

// Compiled for GPUs of compute capability 8.
const Target& sm80();
// The same as PTX, for newer ones: what its registers spill is not known.
const Target& sm80_ptx();

}  // namespace coda::gpu
