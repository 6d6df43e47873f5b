// SPDX-License-Identifier: Apache-2.0
// device/ptx/cluster.cuh on a CPU: the blocks of a cluster run one after another, since operands
// are not shared (mainloop.cuh).
#pragma once

#include "device/ptx/lanes.cuh"

namespace coda::device {

inline u32 cluster_cta_rank() { return block_index() % host_threads->cluster; }
inline void cluster_sync() { synchronize_block(); }

}  // namespace coda::device
