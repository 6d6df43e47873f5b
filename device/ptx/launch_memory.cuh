// SPDX-License-Identifier: Apache-2.0
// The dynamic shared memory of a launch, as an address.
#pragma once

#include "device/layout/shared_layout.cuh"
#include "device/ptx/barrier.cuh"

namespace coda::device {

// Where the dynamic shared memory of the launch begins.
__device__ __forceinline__ SharedAddress launch_memory() {
  extern __shared__ __align__(kSharedAlignment) u8 shared_memory[];
  return shared_address(shared_memory);
}

}  // namespace coda::device
