// SPDX-License-Identifier: Apache-2.0
// Thread block clusters: a CTA's rank, the barrier over all threads of a cluster, and a counter
// shared by the clusters of a launch.
#pragma once

#include "device/types.cuh"

namespace coda::device {

__device__ __forceinline__ u32 cluster_cta_rank() {
  u32 rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

// Synchronises all threads of all CTAs. A CTA may exit only after the others have stopped writing
// to it.
__device__ __forceinline__ void cluster_sync() {
  asm volatile(
      "barrier.cluster.arrive.release.aligned;\n"
      "barrier.cluster.wait.acquire.aligned;\n" ::
          : "memory");
}

// Returns the u32 at `counter` (global) and increments it, or resets it to 0 if it was `last`.
__device__ __forceinline__ u32 take_number(u64 counter, u32 last) {
  u32 number;
  asm volatile("atom.relaxed.gpu.global.inc.u32 %0, [%1], %2;"
               : "=r"(number)
               : "l"(counter), "r"(last)
               : "memory");
  return number;
}

}  // namespace coda::device
