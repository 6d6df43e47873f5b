// SPDX-License-Identifier: Apache-2.0
// What a launch passes to a kernel with the synthetic epilogue.
#pragma once

#include "device/layout/tile_order.cuh"

namespace coda::device {

inline constexpr u32 kMaxSyntheticPlanes = 4;

struct SyntheticArguments {
  TensorMap a;
  TensorMap b;
  TensorMap loads[kMaxSyntheticPlanes];
  TensorMap stores[kMaxSyntheticPlanes];
  TileOrder order;
  u64 tile_counter = 0;  // device/sm90/tile_scheduler.cuh
  u32 k_blocks = 1;      // the contraction in units of kBlockK, rounded up; at least one
};

}  // namespace coda::device
