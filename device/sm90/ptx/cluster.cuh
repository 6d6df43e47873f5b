// SPDX-License-Identifier: Apache-2.0
// Thread block clusters: a CTA's place in its cluster, the barrier over all its threads, and
// numbers that the clusters of a launch share.
#pragma once

#include "device/types.cuh"

namespace coda::device {

__device__ __forceinline__ u32 cluster_cta_rank() {
  u32 rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

// All threads of all CTAs. A CTA may leave only after the others have stopped writing to it.
__device__ __forceinline__ void cluster_sync() {
  asm volatile(
      "barrier.cluster.arrive.release.aligned;\n"
      "barrier.cluster.wait.acquire.aligned;\n" ::
          : "memory");
}

// The number at `counter` (u32, global), which then grows by one, or to 0 where it was `last`.
__device__ __forceinline__ u32 take_number(u64 counter, u32 last) {
  u32 number;
  asm volatile("atom.relaxed.gpu.global.inc.u32 %0, [%1], %2;"
               : "=r"(number)
               : "l"(counter), "r"(last)
               : "memory");
  return number;
}

}  // namespace coda::device
