// SPDX-License-Identifier: Apache-2.0
// Thread block clusters: a CTA's place in its cluster, and the barrier over all its threads.
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

}  // namespace coda::device
