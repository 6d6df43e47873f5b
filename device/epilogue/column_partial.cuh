// SPDX-License-Identifier: Apache-2.0
// A reduction along the 64 rows of a sub-tile, with one result for each of its 64 base columns. A
// thread folds its two rows; eight lanes exchange halves until each has one column of a fragment;
// the four warps combine in shared memory. So a running value takes one register per fragment, and
// 18 instructions and 4 shuffles per 8 elements.
// Invariant: the order depends only on rows and columns, never on the tile.
//
// A space with `column_partials` keeps a ColumnReduction for each in its SubTile and adds every
// fragment to it. At the end of the sub-tile each one is staged at its own offset in the scratch
// (kColumnScratchBytes apart), the warpgroup synchronises once, and store_column_partial writes
// each result.
#pragma once

#include "device/layout/column_lanes.cuh"
#include "device/layout/shared_layout.cuh"
#include "device/ptx/named_barrier.cuh"
#include "device/values/elements.cuh"
#include "device/values/reductions.cuh"

namespace coda::device {

inline constexpr u32 kColumnScratchBytes = scratch_bytes(1);

template <Reduction kKind>
struct ColumnReduction {
  static_assert(lanes_of(kKind) == 1, "only folds are made along columns");
  float fragment[kFragments];

  // Pair q of the values is in row q % 2 and in columns 2 * (q / 2) and the next, of the thread's
  // four columns. Rows outside the space are ignored.
  template <u32 kFragment>
  __device__ __forceinline__ void add(const Elements<2> (&values)[4], const FragmentPosition& at) {
    const bool first = at.row < at.rows;
    const bool second = at.row + 8 < at.rows;
    float column[4];
#pragma unroll
    for (u32 i = 0; i < 4; ++i) {
      column[i] = of_one<kKind>(values[i / 2 * 2].value[i % 2]);
      const float below = of_one<kKind>(values[i / 2 * 2 + 1].value[i % 2]);
      column[i] = second ? fold<kKind>(column[i], below) : column[i];
      column[i] = first ? column[i] : start_of(kKind);
    }
    float half[2];
#pragma unroll
    for (u32 i = 0; i < 2; ++i) half[i] = halve<0>(column[i], column[2 + i], at);
    const float one = halve<1>(half[0], half[1], at);
    fragment[kFragment] = fold<kKind>(one, exchange(one, kColumnExchange[2]));
  }

  __device__ __forceinline__ void stage(SharedAddress scratch, const FragmentPosition& at) const {
    const u32 lane = at.thread % kWarpSize;
    const bool odd = lane / 4 % 2 != 0;
    const SharedAddress warp = scratch + at.thread / kWarpSize * (kSubTileColumns * 4);
#pragma unroll
    for (u32 i = 0; i < 2; ++i) {
      const u32 column = fragment_of_lane(lane, i) * kFragmentColumns + column_of_lane(lane);
      const float value = odd ? fragment[2 * i + 1] : fragment[2 * i];
      store_shared(warp + column * 4, value);
    }
  }

 private:
  // Two lanes with two values each end with one value each; the upper lane has the second one.
  template <u32 kStep>
  __device__ __forceinline__ static float halve(float first, float second,
                                                const FragmentPosition& at) {
    constexpr u32 kMask = kColumnExchange[kStep];
    const bool upper = (at.thread & kMask) != 0;
    const float other = exchange(upper ? first : second, kMask);
    return fold<kKind>(upper ? second : first, other);
  }
};

// Runs in the first 64 threads and combines warps in order. `at` is the sub-tile's first fragment;
// `stride`: elements between rows of the partial; `place(column)`: the index of a base column in
// the partial.
template <Reduction kKind, class Place>
__device__ __forceinline__ void store_column_partial(u64 partial, u32 stride, SharedAddress scratch,
                                                     const FragmentPosition& at, Place place) {
  const u32 column = at.partial_column() * kSubTileColumns + at.thread;
  const u32 first_row = at.partial_row() * kWgmmaM;
  if (at.thread >= kSubTileColumns || column >= at.columns || first_row >= at.rows) return;
  float total = 0.0f;
#pragma unroll
  for (u32 warp = 0; warp < kWarpgroupSize / kWarpSize; ++warp) {
    const float value = load_shared(scratch + (warp * kSubTileColumns + at.thread) * 4);
    total = warp == 0 ? value : fold<kKind>(total, value);
  }
  const u64 index = static_cast<u64>(at.partial_row()) * stride + place(column);
  reinterpret_cast<float*>(partial)[index] = total;
}

template <Reduction kKind>
__device__ __forceinline__ void store_column_partial(u64 partial, u32 stride, SharedAddress scratch,
                                                     const FragmentPosition& at) {
  store_column_partial<kKind>(partial, stride, scratch, at, [](u32 column) { return column; });
}

}  // namespace coda::device
