// SPDX-License-Identifier: Apache-2.0
// device/sm90/ptx/cluster.cuh on a CPU. The blocks of a cluster run together.
#pragma once

#include "device/ptx/lanes.cuh"

namespace coda::device {

inline u32 cluster_cta_rank() { return host_rank(); }
inline void cluster_sync() { host_cluster.wait(host_threads->cluster * block_threads()); }

inline u32 take_number(u64 counter, u32 last) {
  u32& next = *reinterpret_cast<u32*>(counter);
  const u32 number = next;
  next = number >= last ? 0 : number + 1;
  return number;
}

}  // namespace coda::device
