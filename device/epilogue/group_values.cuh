// SPDX-License-Identifier: Apache-2.0
// Sums and largest magnitudes over groups of columns (heads) in a GEMM's epilogue, and values
// computed from them. A quad of threads holds a row's columns, two of each eight per thread. A
// thread adds up its columns of a group, then the quad adds its threads. This happens in a walk
// over the accumulators before the sub-tiles that read the sum: over one sub-tile, or over the few
// that hold a wide group.
// Invariant: the order of a sum depends only on its columns, never on the tile. The columns of the
// space are a multiple of the group, so a group is entirely inside or outside.
#pragma once

#include "device/layout/space.cuh"
#include "device/ptx/global_memory.cuh"
#include "device/ptx/lanes.cuh"
#include "device/values/elements.cuh"

namespace coda::device {

inline constexpr u32 kEight = 8;  // columns, of which a thread has two

// One value for each group of kGroup base columns, over a span of kSpan columns, in a thread's two
// rows. It is indexed by eights of columns, which avoids a division; equal entries share one
// register. A group of 2 or 4 columns is part of an eight, and other threads have the other parts.
template <u32 kGroup, u32 kSpan>
struct GroupValues {
  static_assert(kSpan % kSubTileColumns == 0 && kSpan % kGroup == 0);
  static_assert(kGroup % kEight == 0 || kGroup == 2 || kGroup == 4);
  static constexpr u32 kEights = kSpan / kEight;
  static constexpr u32 kStep = larger(1, kGroup / kEight);  // eights per group
  float value[kEights][2] = {};

  // function(first eight of the group, which of the two rows)
  template <class Function>
  __device__ __forceinline__ void make(Function function) {
#pragma unroll
    for (u32 first = 0; first < kEights; first += kStep) {
#pragma unroll
      for (u32 side = 0; side < 2; ++side) {
        const float x = function(first, side);
#pragma unroll
        for (u32 i = 0; i < kStep; ++i) value[first + i][side] = x;
      }
    }
  }

  // Adds pair `pair` of fragment kFragment of the span, then sums over the quad.
  template <u32 kFragment, class Pair>
  __device__ __forceinline__ void add(u32 pair, const Pair& x) {
    float& sum = value[eight_of(kFragment, pair) / kStep * kStep][pair % 2];
    sum = plus_element(sum, x, 0);
    sum = plus_element(sum, x, 1);
  }
  __device__ __forceinline__ void finish() {
    over_quads([](float a, float b) { return a + b; });
  }
  // The same for largest magnitudes, which also start at 0.
  template <u32 kFragment, class Pair>
  __device__ __forceinline__ void raise(u32 pair, const Pair& x) {
    float& largest = value[eight_of(kFragment, pair) / kStep * kStep][pair % 2];
    largest = larger_element(largest, x, 0);
    largest = larger_element(largest, x, 1);
  }
  __device__ __forceinline__ void finish_largest() {
    over_quads([](float a, float b) { return maximum(a, b); });
  }

  // The value for pair `pair` of fragment kFragment. For later sub-tiles of the span call step()
  // first.
  template <u32 kFragment>
  __device__ __forceinline__ Elements<2> at(u32 pair) const {
    const float x = value[eight_of(kFragment, pair)][pair % 2];
    return {{x, x}};
  }
  __device__ __forceinline__ void next_sub_tile() {
    constexpr u32 kOwn = kSubTileColumns / kEight;
#pragma unroll
    for (u32 i = 0; i + kOwn < kEights; ++i) {
#pragma unroll
      for (u32 side = 0; side < 2; ++side) value[i][side] = value[i + kOwn][side];
    }
  }

  // One thread per group stores the value at place(row, first column of the group).
  template <Element kStored, class Place>
  __device__ __forceinline__ void store(u64 tensor, const FragmentPosition& at, Place place) const {
    // The whole quad loads the values that are overwritten.
    synchronize_warp();
    if (at.thread % 4 * 2 % kGroup != 0) return;
#pragma unroll
    for (u32 first = 0; first < kEights; first += kStep) {
      const u32 column = at.column + first * kEight;
#pragma unroll
      for (u32 side = 0; side < 2; ++side) {
        const u32 row = at.row + 8 * side;
        if (row < at.rows && column < at.columns) {
          store_element<kStored>(tensor, place(row, column), value[first][side]);
        }
      }
    }
  }

 private:
  template <class Join>
  __device__ __forceinline__ void over_quads(Join join) {
    make([&](u32 first, u32 side) {
      float all = value[first][side];
#pragma unroll
      for (u32 mask = 1; mask <= 2 && 2 * mask < kGroup; mask *= 2)
        all = join(all, exchange(all, mask));
      return all;
    });
  }
  static constexpr u32 eight_of(u32 fragment, u32 pair) {
    return fragment * (kFragmentColumns / kEight) + pair / 2;
  }
};

// For a space without groups.
struct NoGroups {};
template <class Space>
__device__ __forceinline__ auto groups_of() {
  if constexpr (Space::kTraits.group_span == 0) {
    return NoGroups{};
  } else {
    return typename Space::Groups{};
  }
}

}  // namespace coda::device
