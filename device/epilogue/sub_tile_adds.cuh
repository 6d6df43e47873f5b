// SPDX-License-Identifier: Apache-2.0
// Adds a sub-tile's values to fp32 numbers in memory with reduction instructions: an accumulated
// gradient is neither loaded nor staged, and nothing waits for it. A sub-tile entirely inside uses
// reductions of four elements at constant distances; a warp covers 64 bytes of eight rows. For 128
// KB one SM takes 4800 cycles; 7500 with reductions of two elements (which threads already have),
// 4500 with 128 bytes of four rows, 5400 with TMA's reduction (lab/notebook/hopper.md, "What adds
// cost").
// Invariant: each element is added to once, so the order does not affect the result.
#pragma once

#include "device/epilogue/sub_tile_rows.cuh"
#include "device/layout/fragment.cuh"
#include "device/layout/space.cuh"
#include "device/ptx/lanes.cuh"
#include "device/values/elements.cuh"

namespace coda::device {

// One row of a fragment. The thread keeps its left or right pair and exchanges the other for the
// neighbouring two values (column_of_four). `address`: of the thread's four values.
__device__ __forceinline__ void add_row_of_fragment(u64 address, const Elements<2>& left,
                                                    const Elements<2>& right, u32 thread) {
  const bool keeps_left = thread % 2 == 0;
  float four[4];
#pragma unroll
  for (u32 i = 0; i < 2; ++i) {
    const float given = keeps_left ? right.value[i] : left.value[i];
    const float taken = exchange(given, 1);
    four[i] = keeps_left ? left.value[i] : taken;
    four[2 + i] = keeps_left ? taken : right.value[i];
  }
  add_four_floats(address, four);
}

// `first(plane)`: the element of plane `plane`'s first pair in a row; the other pairs have the same
// distances as in the sub-tile. `at`: the sub-tile's first fragment; `stride`: elements between
// rows.
template <u32 kPlanes, class Pair, class First>
__device__ __forceinline__ void add_sub_tile(u64 tensor, u32 stride,
                                             const SubTileOf<Pair> (&x)[kPlanes],
                                             const FragmentPosition& at, First first) {
  const bool is_whole = (at.partial_row() + 1) * kWgmmaM <= at.rows &&
                        (at.partial_column() + 1) * kSubTileColumns <= at.columns;
#pragma unroll
  for (u32 plane = 0; plane < kPlanes; ++plane) {
    const u64 top = static_cast<u64>(at.row) * stride + first(plane);
    const u64 rows[2] = {top, top + 8 * static_cast<u64>(stride)};
    const u32 four =
        column_of_four(at.thread) - fragment_column(at.thread, 0);  // from the first pair
    const u64 address = tensor + (top + four) * 4;
    // All lanes must agree, because they exchange values.
    if (__all_sync(~0u, is_whole && address % 16 == 0 && stride % 4 == 0)) {
      const u64 addresses[2] = {address, address + 32 * static_cast<u64>(stride)};
#pragma unroll
      for (u32 i = 0; i < 2 * kFragments; ++i) {
        const Pair(&fragment)[kPairs] = x[plane][i / 2];
        add_row_of_fragment(addresses[i % 2] + i / 2 * kFragmentColumns * 4, fragment[i % 2],
                            fragment[2 + i % 2], at.thread);
      }
      continue;
    }
#pragma unroll
    for (u32 i = 0; i < 2 * kFragments * kPairs; ++i) {
      const u32 pair = i / 2;
      const u32 distance = pair / kPairs * kFragmentColumns + pair % kPairs / 2 * 8 + i % 2;
      if (at.row + 8 * (pair % 2) >= at.rows || at.column + distance >= at.columns) continue;
      add_float(tensor + (rows[pair % 2] + distance) * 4,
                x[plane][pair / kPairs][pair % kPairs].value[i % 2]);
    }
  }
}

}  // namespace coda::device
