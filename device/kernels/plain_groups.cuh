// SPDX-License-Identifier: Apache-2.0
// Sums or largest magnitudes of groups of any number of neighbouring columns, from memory to
// memory, with one warp for each row and group. For groups that neither a tile nor a warp can hold
// whole.
// Invariant: the order of a sum depends only on its columns.
#pragma once

#include "device/kernels/plain_shape.cuh"
#include "device/ptx/lanes.cuh"
#include "device/tiles/vector_access.cuh"
#include "device/values/reductions.cuh"

namespace coda::device {

// Group number `block * kGroupWarps + warp`, counted along rows. Row r of the input starts at
// start(r), and its columns repeat after `stored_columns`.
template <Reduction kKind, Element kFrom, Element kTo, class Start>
__device__ __forceinline__ void fold_groups(u64 from, Start start, u32 stored_columns, u64 to,
                                            u32 to_stride, u32 block, u32 rows, u32 groups,
                                            u32 group) {
  static_assert(kKind == Reduction::sum || kKind == Reduction::abs_max);  // both start at 0
  constexpr u32 kLanes = 32;
  const u64 index = static_cast<u64>(block) * kGroupWarps + thread_index() / kLanes;
  const bool is_inside = index < static_cast<u64>(rows) * groups;
  const u32 row = is_inside ? static_cast<u32>(index / groups) : 0;
  const u64 own = is_inside ? index % groups : 0;
  float all = 0.0f;
  for (u32 column = thread_index() % kLanes; column < group; column += kLanes) {
    const float x = load_element<kFrom>(from, start(row) + (own * group + column) % stored_columns);
    all = fold<kKind>(all, of_one<kKind>(x));
  }
#pragma unroll
  for (u32 mask = 1; mask < kLanes; mask *= 2) all = fold<kKind>(all, exchange(all, mask));
  if (is_inside && thread_index() % kLanes == 0) {
    store_element<kTo>(to, row_start(row, to_stride) + own, all);
  }
}

}  // namespace coda::device
