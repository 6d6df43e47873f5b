// SPDX-License-Identifier: Apache-2.0
// setmaxnreg: the producer warpgroup, which only computes addresses, gives registers to the
// consumers, which hold the accumulators. Every warp of the warpgroup must execute it.
#pragma once

#include "device/types.cuh"

namespace coda::device {

template <u32 kRegisters>
__device__ __forceinline__ void release_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

template <u32 kRegisters>
__device__ __forceinline__ void claim_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

}  // namespace coda::device
