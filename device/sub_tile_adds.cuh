// SPDX-License-Identifier: Apache-2.0
// A sub-tile's values added to fp32 in memory, at the memory: a gradient that accumulates is
// neither loaded nor staged, and nothing waits for it. A sub-tile that is wholly inside, which is
// nearly every one, is one reduction of two elements after another at constant distances.
// Invariant: each element is added to once, so the result is the same in any order.
#pragma once

#include "device/elements.cuh"
#include "device/space.cuh"
#include "device/sub_tile_rows.cuh"

namespace coda::device {

__device__ __forceinline__ void add_aligned_pair(u64 address, const Elements<2>& x) {
  asm volatile("red.global.add.v2.f32 [%0], {%1, %2};" ::"l"(address), "f"(x.value[0]),
               "f"(x.value[1])
               : "memory");
}

__device__ __forceinline__ void add_element(u64 address, float x) {
  asm volatile("red.global.add.f32 [%0], %1;" ::"l"(address), "f"(x) : "memory");
}

// Plane `plane` has its first pair at element `first(plane)` of a row, the others as far from it as
// in the sub-tile. `at` is the sub-tile's first chunk; `stride`: elements between rows.
template <u32 kPlanes, class Pair, class First>
__device__ __forceinline__ void add_sub_tile(u64 tensor, u32 stride,
                                             const SubTileOf<Pair> (&x)[kPlanes],
                                             const Position& at, First first) {
  const bool is_whole = (at.partial_row() + 1) * kWgmmaM <= at.rows &&
                        (at.partial_column() + 1) * kSubTileColumns <= at.columns;
  const bool is_plain = is_whole && tensor % 8 == 0 && stride % 2 == 0;
#pragma unroll
  for (u32 plane = 0; plane < kPlanes; ++plane) {
    const u64 top = static_cast<u64>(at.row) * stride + first(plane);
    const u64 rows[2] = {top, top + 8 * static_cast<u64>(stride)};
    if (is_plain && rows[0] % 2 == 0) {
      const u64 addresses[2] = {tensor + rows[0] * 4, tensor + rows[1] * 4};
#pragma unroll
      for (u32 i = 0; i < kChunks * kPairs; ++i) {
        const u32 distance = i / kPairs * kChunkColumns + i % kPairs / 2 * 8;
        add_aligned_pair(addresses[i % 2] + distance * 4, x[plane][i / kPairs][i % kPairs]);
      }
      continue;
    }
#pragma unroll
    for (u32 i = 0; i < 2 * kChunks * kPairs; ++i) {
      const u32 pair = i / 2;
      const u32 distance = pair / kPairs * kChunkColumns + pair % kPairs / 2 * 8 + i % 2;
      if (at.row + 8 * (pair % 2) >= at.rows || at.column + distance >= at.columns) continue;
      add_element(tensor + (rows[pair % 2] + distance) * 4,
                  x[plane][pair / kPairs][pair % kPairs].value[i % 2]);
    }
  }
}

}  // namespace coda::device
