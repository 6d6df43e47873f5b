// SPDX-License-Identifier: Apache-2.0
// Tensors that threads load themselves, without the staging ring (fp32 tables, gathered rows),
// ahead of their use: while a fragment is computed, the next one's loads are under way. Sub-tiles
// that are wholly inside take plain loads at constant distances from each row's first pair; only
// others ask for each pair what of it exists.
// Invariant: the loads of a sub-tile's fragments are made in order, each by all threads together.
#pragma once

#include "device/epilogue/sub_tile_rows.cuh"
#include "device/layout/space.cuh"
#include "device/values/elements.cuh"
#include "device/values/unrolled.cuh"

namespace coda::device {

// Whether all 64 rows and columns of the sub-tile at its first fragment's position exist.
__device__ __forceinline__ bool is_whole(const FragmentPosition& at) {
  return (at.partial_row() + 1) * kWgmmaM <= at.rows &&
         (at.partial_column() + 1) * kSubTileColumns <= at.columns;
}

// Whether pairs from even columns on can be loaded in one access.
template <Element kStored>
__device__ __forceinline__ bool has_aligned_pairs(u64 tensor, u32 stride) {
  return tensor % (2 * bytes_of(kStored)) == 0 && stride % 2 == 0;
}

// One plane of such a tensor: two fragments in turn; or a sub-tile's four, where all sub-tiles of
// the same rows read the same (a table that repeats every 64 columns): those are loaded under the
// mainloop.
template <Element kStored, u32 kSlots = 2>
struct DirectPairs {
  u64 row[2];  // where the sub-tile's first pair stands in the thread's rows
  Elements<2> fragment[kSlots][kPairs];

  // The sub-tile's first pair is element `first`, `second` of the tensor in the thread's two rows.
  __device__ __forceinline__ void begin(u64 tensor, u64 first, u64 second) {
    row[0] = tensor + first * bytes_of(kStored);
    row[1] = tensor + second * bytes_of(kStored);
  }
  template <u32 kFragment>
  __device__ __forceinline__ void load() {
#pragma unroll
    for (u32 pair = 0; pair < kPairs; ++pair) load<kFragment, true>(pair, 2);
  }
  // One pair, of which the first `inside` elements exist.
  template <u32 kFragment, bool kAligned = false>
  __device__ __forceinline__ void load(u32 pair, u32 inside) {
    fragment[kFragment % kSlots][pair] = load_pair<kStored, kAligned>(
        row[pair % 2], kFragment * kFragmentColumns + 8 * (pair / 2), inside);
  }
};

}  // namespace coda::device
