// SPDX-License-Identifier: Apache-2.0
// The targets for GPUs since Ampere. Their kernels use only instructions that all these GPUs have:
// mma.sync, ldmatrix, cp.async. The target "sm89" adds the matrix instructions for 8-bit floats,
// which GPUs have since Ada. The kernels are compiled for the GPU's own architecture, with the
// shared memory that it has. For a GPU that the compiler does not know they are PTX, which the
// driver compiles; how many registers spill is then not known. Their speed has not been measured.
#pragma once

#include <span>

#include "coda/gpu_card.h"
#include "gpu/target/target.h"

namespace coda::gpu {

// All of them: for each architecture sm80, and sm89 if the architecture has 8-bit floats.
std::span<const Target> sm80_targets();

const Target& sm80();  // for compute capability 8.0
const Target& sm89();  // for compute capability 8.9
// The one for GPUs of exactly this capability, else PTX; with 8-bit floats if the GPU has them and
// `with_eight_bits`.
const Target& sm80_for(int major, int minor, bool with_eight_bits = true);
// `target` with the number of multiprocessors and the tensor cores' rate of a card. The card has
// the target's capability.
const Target& with_rates_of(const Target& target, const GpuCard& card);

}  // namespace coda::gpu
