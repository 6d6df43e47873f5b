// SPDX-License-Identifier: Apache-2.0
// The operands of Hopper's attention in shared memory: how a thread loads blocks of rows to where
// wgmma reads them, and the matrix products.
// Each warp of a warpgroup holds its accumulators as those of 16 rows of mma.sync
// (device/attention/fragments.cuh), so scores and softmax are the same code.
#pragma once

#include "device/attention/head_rows.cuh"
#include "device/layout/wgmma_descriptor.cuh"
#include "device/ptx/matrix_move.cuh"
#include "device/sm90/attention/tiles.cuh"
#include "device/sm90/ptx/tma_matrices.cuh"
#include "device/sm90/ptx/wgmma_registers.cuh"

namespace coda::device::attention::sm90 {

// Loads kRows tokens of a head of kColumns columns, from token `first` of a sequence on. What the
// last panel has behind the head's columns has no meaning. load_block() also tells the barrier.
template <u32 kRows, u32 kColumns>
__device__ __forceinline__ void load_panels(SharedAddress to, const TensorMap* map, u32 sequence,
                                            u32 head, u32 first, SharedAddress full) {
#pragma unroll
  for (u32 panel = 0; panel < panels(kColumns); ++panel) {
    tma_load_of_matrix(to + panel * panel_bytes(kRows), map, head * kColumns + panel * kBlockK,
                       first, sequence, full);
  }
}
template <u32 kRows, u32 kColumns>
__device__ __forceinline__ void load_block(SharedAddress to, const TensorMap* map, u32 sequence,
                                           u32 head, u32 first, SharedAddress full) {
  barrier_arrive_expect(full, block_bytes(kRows, kColumns));
  load_panels<kRows, kColumns>(to, map, sequence, head, first, full);
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

// kPartColumns of the columns.
inline constexpr u32 kPartColumns = 32;
template <u32 kColumns>
__device__ __forceinline__ Accumulators<16, kPartColumns>& part_of(Accumulators<16, kColumns>& x,
                                                                   u32 part) {
  return reinterpret_cast<Accumulators<16, kPartColumns>&>(x.sums[0][part * kPartColumns / 8]);
}

// Issues products = left · rightᵀ for 64 of kLeft rows, for example of queries and keys.
template <Element kElement, u32 kDim, u32 kLeft, u32 kRight>
__device__ __forceinline__ void issue_dot_products(Accumulators<16, kRight>& products, u32 left,
                                                   u32 right) {
#pragma unroll
  for (u32 k = 0; k < kDim; k += kWgmmaK) {
    const u32 panel = k / kBlockK;
    const u32 in_panel = k % kBlockK * kElementBytes;
    wgmma<kRight, kElement, kElement, Major::k, Major::k>(
        sums_of(products),
        whole_descriptor(Major::k, left + ((panel * panel_bytes(kLeft) + in_panel) >> 4)),
        whole_descriptor(Major::k, right + ((panel * panel_bytes(kRight) + in_panel) >> 4)),
        k == 0 ? 0 : 1);
  }
}

// Starts the product sums += left · right on the tensor cores, and does not wait for it. In the
// forward `left` holds probabilities and `right` values.
template <Element kElement, u32 kWidth, u32 kDepth>
__device__ __forceinline__ void issue_product(Accumulators<16, kWidth>& sums,
                                              const LeftFragments<16, kDepth>& left, u32 right) {
#pragma unroll
  for (u32 k = 0; k < kDepth; k += kWgmmaK) {
    wgmma_of_registers<kWidth, kElement>(
        sums_of(sums), left.words[0][k / kWgmmaK],
        whole_descriptor(Major::outer, right + (k * kSwizzleBytes >> 4)));
  }
}

// Issues product = leftᵀ · right, of a panel [kDepth, 64] each.
template <Element kElement, u32 kDepth>
__device__ __forceinline__ void issue_panel_product(Accumulators<16, 64>& product, u32 left,
                                                    u32 right) {
#pragma unroll
  for (u32 k = 0; k < kDepth; k += kWgmmaK) {
    const u32 step = k * kSwizzleBytes >> 4;
    wgmma<64, kElement, kElement, Major::outer, Major::outer>(
        sums_of(product), whole_descriptor(Major::outer, left + step),
        whole_descriptor(Major::outer, right + step), k == 0 ? 0 : 1);
  }
}

// Stores columns of the warpgroup's 64 rows, from column `first` on, to panels of kPanelRows rows
// as TMA would. `own` is own_matrix_row() of the first panel, in which the warpgroup's rows begin
// at first_row.
__device__ __forceinline__ SharedAddress own_matrix_row(SharedAddress panel, u32 first_row) {
  const u32 thread = thread_index_anew() % kWarpgroupSize;
  const u32 lane = thread % kWarpSize;
  return panel + (first_row + thread / kWarpSize * 16 + lane % 16) * kSwizzleBytes +
         ((lane / 16) ^ lane % 8) * 16;
}
template <u32 kPanelRows, u32 kColumns>
__device__ __forceinline__ void store_fragments(SharedAddress own, u32 first,
                                                const LeftFragments<16, kColumns>& x) {
#pragma unroll
  for (u32 k = 0; k < kColumns; k += 16) {
    const u32 column = first + k;
    store_matrices(
        (own + column / kBlockK * panel_bytes(kPanelRows)) ^ column % kBlockK * kElementBytes,
        x.words[0][k / 16]);
  }
}

}  // namespace coda::device::attention::sm90
