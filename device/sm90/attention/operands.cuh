// SPDX-License-Identifier: Apache-2.0
// The operands of Hopper's attention in shared memory: how a thread loads blocks of rows to where
// wgmma reads them, and the two matrix products.
// Each warp of a warpgroup holds its accumulators as those of 16 rows of mma.sync
// (device/attention/fragments.cuh), so scores and softmax are the same code.
#pragma once

#include "device/attention/head_rows.cuh"
#include "device/layout/wgmma_descriptor.cuh"
#include "device/sm90/attention/tiles.cuh"
#include "device/sm90/ptx/tma_matrices.cuh"
#include "device/sm90/ptx/wgmma_registers.cuh"

namespace coda::device::attention::sm90 {

// Loads kRows tokens of a head of kColumns columns, from token `first` of a sequence on. What the
// last panel has behind the head's columns has no meaning.
template <u32 kRows, u32 kColumns>
__device__ __forceinline__ void load_block(SharedAddress to, const TensorMap* map, u32 sequence,
                                           u32 head, u32 first, SharedAddress full) {
  barrier_arrive_expect(full, block_bytes(kRows, kColumns));
#pragma unroll
  for (u32 panel = 0; panel < panels(kColumns); ++panel) {
    tma_load_of_matrix(to + panel * panel_bytes(kRows), map, head * kColumns + panel * kBlockK,
                       first, sequence, full);
  }
}

// The low halves of descriptors, which have the address: of rows that are contiguous along the
// summed dimension (queries, keys), and of values, which are contiguous along the other one.
__device__ __forceinline__ u32 rows_descriptor(SharedAddress start) {
  return static_cast<u32>(wgmma_descriptor(Major::k, start.byte));
}
template <u32 kKeys>
__device__ __forceinline__ u32 values_descriptor(SharedAddress start) {
  return (start.byte & 0x3ffff) >> 4 | panel_bytes(kKeys) >> 4 << 16;
}

template <u32 kColumns>
__device__ __forceinline__ float (&sums_of(Accumulators<16, kColumns>& x))
    [kColumns / 2] { return reinterpret_cast<float (&)[kColumns / 2]>(x.sums); }

// Issues scores = queries · keysᵀ for 64 of kQueries queries.
template <Element kElement, u32 kDim, u32 kQueries, u32 kKeys>
__device__ __forceinline__
    void issue_scores(Accumulators<16, kKeys>& scores, u32 queries, u32 keys) {
#pragma unroll
  for (u32 k = 0; k < kDim; k += kWgmmaK) {
    const u32 panel = k / kBlockK;
    const u32 in_panel = k % kBlockK * kElementBytes;
    wgmma<kKeys, kElement, kElement, Major::k, Major::k>(
        sums_of(scores),
        whole_descriptor(Major::k, queries + ((panel * panel_bytes(kQueries) + in_panel) >> 4)),
        whole_descriptor(Major::k, keys + ((panel * panel_bytes(kKeys) + in_panel) >> 4)),
        k == 0 ? 0 : 1);
  }
}

// Issues output += probabilities · values.
template <Element kElement, u32 kWidth, u32 kKeys>
__device__ __forceinline__ void issue_output(Accumulators<16, kWidth>& output,
                                             const LeftFragments<16, kKeys>& probabilities,
                                             u32 values) {
#pragma unroll
  for (u32 k = 0; k < kKeys; k += kWgmmaK) {
    wgmma_of_registers<kWidth, kElement>(
        sums_of(output), probabilities.words[0][k / kWgmmaK],
        whole_descriptor(Major::outer, values + (k * kSwizzleBytes >> 4)));
  }
}

}  // namespace coda::device::attention::sm90
