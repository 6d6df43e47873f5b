// SPDX-License-Identifier: Apache-2.0
// Direct loads by threads, without the staging ring (fp32 tables, gathered rows). The loads of a
// fragment are issued while the previous fragment is computed. Sub-tiles entirely inside the tensor
// use unconditional loads at constant distances; other sub-tiles check every pair.
// Invariant: the loads of a sub-tile's fragments are issued in order, by all threads together.
#pragma once

#include "device/epilogue/sub_tile_rows.cuh"
#include "device/layout/space.cuh"
#include "device/values/elements.cuh"
#include "device/values/unrolled.cuh"

namespace coda::device {

// Whether the sub-tile with its first fragment at this position has all 64 rows and columns.
__device__ __forceinline__ bool is_whole(const FragmentPosition& at) {
  return (at.partial_row() + 1) * kWgmmaM <= at.rows &&
         (at.partial_column() + 1) * kSubTileColumns <= at.columns;
}

// Whether a pair that starts at an even column can be loaded in one access.
template <Element kStored>
__device__ __forceinline__ bool has_aligned_pairs(u64 tensor, u32 stride) {
  return tensor % (2 * bytes_of(kStored)) == 0 && stride % 2 == 0;
}

// One plane of such a tensor: slots for two fragments in turn, or for all four of a sub-tile if all
// sub-tiles of the same rows read the same values (a table that repeats every 64 columns) and the
// loads are issued during the mainloop.
template <Element kStored, u32 kSlots = 2>
struct DirectPairs {
  u64 row[2];  // addresses of the sub-tile's first pair in the thread's rows
  Elements<2> fragment[kSlots][kPairs];

  // `first`, `second`: the elements of the sub-tile's first pair in the thread's two rows.
  __device__ __forceinline__ void begin(u64 tensor, u64 first, u64 second) {
    row[0] = tensor + first * bytes_of(kStored);
    row[1] = tensor + second * bytes_of(kStored);
  }
  template <u32 kFragment>
  __device__ __forceinline__ void load() {
#pragma unroll
    for (u32 pair = 0; pair < kPairs; ++pair) load<kFragment, true>(pair, 2);
  }
  // Loads one pair, whose first `inside` elements exist.
  template <u32 kFragment, bool kAligned = false>
  __device__ __forceinline__ void load(u32 pair, u32 inside) {
    fragment[kFragment % kSlots][pair] = load_pair<kStored, kAligned>(
        row[pair % 2], kFragment * kFragmentColumns + 8 * (pair / 2), inside);
  }
};

}  // namespace coda::device
