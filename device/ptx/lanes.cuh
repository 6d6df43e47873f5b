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

// Numbers of its own for each call, from a counter in shared memory, of which it gets the first: no
// two the same, in any order.
__device__ __forceinline__ u32 take_places(u32& counter, u32 places) {
  return atomicAdd(&counter, places);
}
__device__ __forceinline__ u32 count_bits(u32 word) { return __popc(word); }

// Of a word in shared memory, by any number of threads.
__device__ __forceinline__ void set_bits(u32& word, u32 bits) { atomicOr(&word, bits); }

__device__ __forceinline__ void synchronize_warp() { __syncwarp(); }
__device__ __forceinline__ void synchronize_block() { __syncthreads(); }

}  // namespace coda::device
