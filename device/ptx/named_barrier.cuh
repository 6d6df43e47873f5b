// SPDX-License-Identifier: Apache-2.0
// The sixteen hardware barriers of a CTA, and an ordering of the two ping-pong warpgroups built on
// them: each enters a section after the other has left it.
// Invariant: the warpgroups alternate in calling `enter` and `leave`; the second one calls `open`
// once, so that the first may enter.
#pragma once

#include "device/config.cuh"

namespace coda::device {

// Barrier 0 is __syncthreads'. Each name has two barriers, one for each consumer warpgroup.
enum class NamedBarrier : u32 { mainloop_order = 1, epilogue_order = 3, warpgroup = 5 };

__device__ __forceinline__ void named_barrier_sync(u32 id, u32 threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

__device__ __forceinline__ void named_barrier_arrive(u32 id, u32 threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// Synchronises the 128 threads of a consumer warpgroup.
__device__ __forceinline__ void synchronize_warpgroup() {
  const u32 consumer = threadIdx.x / kWarpgroupSize - 1;
  named_barrier_sync(static_cast<u32>(NamedBarrier::warpgroup) + consumer, kWarpgroupSize);
}

template <NamedBarrier kSection>
struct Turn {
  static constexpr u32 kFirst = static_cast<u32>(kSection);
  static constexpr u32 kParticipants = kConsumerWarpgroups * kWarpgroupSize;

  __device__ __forceinline__ static void open(u32 warpgroup) {
    if (warpgroup == 1) named_barrier_arrive(kFirst, kParticipants);
  }
  __device__ __forceinline__ static void enter(u32 warpgroup) {
    named_barrier_sync(kFirst + warpgroup, kParticipants);
  }
  __device__ __forceinline__ static void leave(u32 warpgroup) {
    named_barrier_arrive(kFirst + (warpgroup ^ 1), kParticipants);
  }
};

}  // namespace coda::device
