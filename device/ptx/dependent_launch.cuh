// SPDX-License-Identifier: Apache-2.0
// Programmatic dependent launch: a kernel may start while the one before it in the stream ends, and
// waits before it touches what that one wrote. Both do nothing in an ordinary launch.
// Invariant: a kernel that may be launched so waits, even if it reads nothing of its predecessor:
// the next one relies on all before it.
#pragma once

#include "device/types.cuh"

namespace coda::device {

// The next kernel in the stream may start once every CTA has said so, or has ended.
__device__ __forceinline__ void launch_dependents() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

// Until all kernels before this one have ended and their writes are visible.
__device__ __forceinline__ void wait_for_predecessor() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}

}  // namespace coda::device
