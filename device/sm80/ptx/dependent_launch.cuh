// SPDX-License-Identifier: Apache-2.0
// Replaces device/ptx/dependent_launch.cuh: before compute capability 9.0, a kernel starts only
// after the previous kernel in the stream has ended, so there is nothing to wait for.
#pragma once

#include "device/types.cuh"

namespace coda::device {

__device__ __forceinline__ void launch_dependents() {}
__device__ __forceinline__ void wait_for_predecessor() {}

}  // namespace coda::device
