// SPDX-License-Identifier: Apache-2.0
// What a launch passes to the mainloop. Apart from it, because the host fills it in.
#pragma once

#include "device/tile_order.cuh"

namespace coda::device {

struct GemmArguments {
  TensorMap a;
  TensorMap b;
  TileOrder order;
  u32 k_blocks = 1;  // the contraction in units of kBlockK, rounded up; at least one
};

}  // namespace coda::device
