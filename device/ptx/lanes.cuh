// SPDX-License-Identifier: Apache-2.0
// Which thread this is, and how the threads of a warp and of a block exchange values: all that
// kernels without a product know of their neighbours. Tests replace this one file to run such
// kernels on a CPU.
// Invariant: every thread of a warp (of the block) reaches each exchange (each synchronisation).
#pragma once

#include "device/types.cuh"

namespace coda::device {

__device__ __forceinline__ u32 thread_index() { return threadIdx.x; }
__device__ __forceinline__ u32 block_threads() { return blockDim.x; }
__device__ __forceinline__ u32 block_index() { return blockIdx.x; }

// The value of the lane whose number differs by the bits of `mask`.
__device__ __forceinline__ float exchange(float value, u32 mask) {
  return __shfl_xor_sync(~0u, value, mask);
}

__device__ __forceinline__ u32 exchange(u32 value, u32 mask) {
  return __shfl_xor_sync(~0u, value, mask);
}

// Of all lanes' values.
__device__ __forceinline__ u32 largest_of_warp(u32 value) { return __reduce_max_sync(~0u, value); }

// A number of its own for each call, from a counter in shared memory: no two the same, in any
// order.
__device__ __forceinline__ u32 take_place(u32& counter) { return atomicAdd(&counter, 1u); }

__device__ __forceinline__ void synchronize_warp() { __syncwarp(); }
__device__ __forceinline__ void synchronize_block() { __syncthreads(); }

}  // namespace coda::device
