// SPDX-License-Identifier: Apache-2.0
// Programmatic dependent launch: a kernel may start while the previous one in the stream ends, and
// waits before it accesses what that one wrote. Both functions have no effect in an ordinary
// launch.
// Invariant: a kernel launched this way always waits, even if it reads nothing of its predecessor,
// because its successor relies on all earlier kernels.
#pragma once

#include "device/types.cuh"

namespace coda::device {

// The next kernel in the stream may start when every CTA has called this or ended.
__device__ __forceinline__ void launch_dependents() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

// Waits until all earlier kernels have ended and their writes are visible.
__device__ __forceinline__ void wait_for_predecessor() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}

}  // namespace coda::device
