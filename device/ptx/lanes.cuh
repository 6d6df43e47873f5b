// SPDX-License-Identifier: Apache-2.0
// Thread indices, and exchanges within a warp and a block. Kernels without a GEMM use only these.
// Tests replace this file to run such kernels on a CPU.
// Invariant: all threads of a warp (of the block) call each exchange (each synchronisation).
#pragma once

#include "device/types.cuh"

namespace coda::device {

__device__ __forceinline__ u32 thread_index() { return threadIdx.x; }
// The same, read anew: the compiler recomputes what follows from it instead of keeping it in
// registers.
__device__ __forceinline__ u32 thread_index_anew() {
  u32 index;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(index));
  return index;
}
__device__ __forceinline__ u32 block_threads() { return blockDim.x; }
__device__ __forceinline__ u32 block_index() { return blockIdx.x; }

// The value of the lane whose index differs in the bits of `mask`.
__device__ __forceinline__ float exchange(float value, u32 mask) {
  return __shfl_xor_sync(~0u, value, mask);
}

__device__ __forceinline__ u32 exchange(u32 value, u32 mask) {
  return __shfl_xor_sync(~0u, value, mask);
}

// The maximum over all lanes.
__device__ __forceinline__ u32 largest_of_warp(u32 value) { return __reduce_max_sync(~0u, value); }

// The sum over all lower lanes.
__device__ __forceinline__ u32 sum_of_lanes_before(u32 value) {
  const u32 lane = threadIdx.x % 32;
  u32 sum = value;
#pragma unroll
  for (u32 step = 1; step < 32; step *= 2) {
    const u32 other = __shfl_up_sync(~0u, sum, step);
    sum += lane >= step ? other : 0;
  }
  return sum - value;
}

// Adds `count` to `next` in shared memory and returns the old value in all lanes.
__device__ __forceinline__ u32 take_numbers(u32& next, u32 count) {
  const u32 first = threadIdx.x % 32 == 0 ? atomicAdd(&next, count) : 0;
  return __shfl_sync(~0u, first, 0);
}

// A bit for each lane where the condition is true, or which has the same value.
__device__ __forceinline__ u32 lanes_that(bool is_true) { return __ballot_sync(~0u, is_true); }
__device__ __forceinline__ u32 lanes_with_same(u32 value) { return __match_any_sync(~0u, value); }
__device__ __forceinline__ u32 count_bits(u32 word) { return __popc(word); }

// The dynamic shared memory of the launch.
template <class Object>
__device__ __forceinline__ Object& block_memory() {
  extern __shared__ __align__(16) u8 dynamic_memory[];
  return *reinterpret_cast<Object*>(dynamic_memory);
}

__device__ __forceinline__ void synchronize_warp() { __syncwarp(); }
__device__ __forceinline__ void synchronize_block() { __syncthreads(); }

}  // namespace coda::device
