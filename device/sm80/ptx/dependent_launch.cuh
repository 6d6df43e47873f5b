// SPDX-License-Identifier: Apache-2.0
// In place of device/ptx/dependent_launch.cuh: before compute capability 9.0 a kernel starts when
// the one before it in the stream has ended.
#pragma once

#include "device/types.cuh"

namespace coda::device {

__device__ __forceinline__ void launch_dependents() {}
__device__ __forceinline__ void wait_for_predecessor() {}

}  // namespace coda::device
