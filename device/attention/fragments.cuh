// SPDX-License-Identifier: Apache-2.0
// The matrix products of attention by mma.sync, which every GPU since Ampere has. This is the only
// file of attention that knows the instruction: how a warp reads operands from shared memory, which
// accumulators a thread holds, and how accumulators become an operand without leaving registers.
#pragma once

#include "device/attention/tiles.cuh"
#include "device/ptx/lanes.cuh"
#include "device/sm80/ptx/mma.cuh"

namespace coda::device::attention {

// Rows of 16-bit elements in shared memory.
template <u32 kColumns>
struct SharedRows {
  SharedAddress start;

  __device__ __forceinline__ SharedAddress at(u32 row, u32 column) const {
    return start + (row * row_bytes(kColumns) + column * kElementBytes);
  }
};

// kRows x kColumns sums of a warp. The four lanes of a quad hold the same rows.
template <u32 kRows, u32 kColumns>
struct Accumulators {
  static constexpr u32 kOwnRows = kRows / 8;        // of a thread
  static constexpr u32 kOwnColumns = kColumns / 4;  // of a thread, in each of its rows
  float sums[kRows / 16][kColumns / 8][4];

  __device__ __forceinline__ float& at(u32 row, u32 column) {
    return sums[row / 2][column / 2][row % 2 * 2 + column % 2];
  }
  __device__ __forceinline__ float at(u32 row, u32 column) const {
    return sums[row / 2][column / 2][row % 2 * 2 + column % 2];
  }
  __device__ __forceinline__ void clear() {
#pragma unroll
    for (u32 row = 0; row < kOwnRows; ++row) {
#pragma unroll
      for (u32 column = 0; column < kOwnColumns; ++column) at(row, column) = 0.0f;
    }
  }
};

// Where a thread's row and column of Accumulators lie: the row in the CTA's block, of which each
// warp has kRows, and the column in the matrix. Columns 2 i and 2 i + 1 of a thread are neighbours.
__device__ __forceinline__ u32 own_lane() { return thread_index() % kWarpSize; }
template <u32 kRows>
__device__ __forceinline__ u32 row_of(u32 own_row) {
  const u32 thread = thread_index_anew();
  return thread / kWarpSize * kRows + thread % kWarpSize / 4 + 8 * own_row;
}
__device__ __forceinline__ u32 column_of(u32 own_column) {
  return own_lane() % 4 * 2 + own_column / 2 * 8 + own_column % 2;
}

// The sum and the maximum over the columns of a row, of which each lane of a quad has its own.
__device__ __forceinline__ float sum_of_quad(float value) {
  value += exchange(value, 1);
  return value + exchange(value, 2);
}
__device__ __forceinline__ float largest_of_quad(float value) {
  value = fmaxf(value, exchange(value, 1));
  return fmaxf(value, exchange(value, 2));
}

// Accumulators rounded to 16 bits, as the left operand of a product.
template <u32 kRows, u32 kDepth>
struct LeftFragments {
  u32 words[kRows / 16][kDepth / 16][4];
};
template <Element kElement, u32 kRows, u32 kColumns>
__device__ __forceinline__ LeftFragments<kRows, kColumns> rounded(
    const Accumulators<kRows, kColumns>& x) {
  LeftFragments<kRows, kColumns> result;
#pragma unroll
  for (u32 m = 0; m < kRows / 16; ++m) {
#pragma unroll
    for (u32 k = 0; k < kColumns / 16; ++k) {
#pragma unroll
      for (u32 i = 0; i < 4; ++i) {
        const float (&pair)[4] = x.sums[m][2 * k + i / 2];
        result.words[m][k][i] = pack<kElement>(pair[i % 2 * 2], pair[i % 2 * 2 + 1]);
      }
    }
  }
  return result;
}

// sums += left[kRows of each warp][kDepth] · right[kColumns][kDepth]ᵀ
template <Element kElement, u32 kRows, u32 kColumns, u32 kDepth>
__device__ __forceinline__ void add_dot_products(Accumulators<kRows, kColumns>& x,
                                                 const SharedRows<kDepth>& left,
                                                 const SharedRows<kDepth>& right) {
  const u32 lane = own_lane();
  const SharedAddress left_start =
      left.at(thread_index() / kWarpSize * kRows + lane % 16, lane / 16 * 8);
  const SharedAddress right_start = right.at(lane % 8 + lane / 16 * 8, lane / 8 % 2 * 8);
#pragma unroll
  for (u32 k = 0; k < kDepth; k += 16) {
    u32 a[kRows / 16][4];
#pragma unroll
    for (u32 m = 0; m < kRows / 16; ++m)
      load_matrices(a[m], left_start + (16 * m * row_bytes(kDepth) + k * kElementBytes));
#pragma unroll
    for (u32 n = 0; n < kColumns / 16; ++n) {
      u32 b[4];
      load_matrices(b, right_start + (16 * n * row_bytes(kDepth) + k * kElementBytes));
#pragma unroll
      for (u32 m = 0; m < kRows / 16; ++m) {
        sm80::multiply_add<kElement, kElement>(x.sums[m][2 * n], a[m], b[0], b[1]);
        sm80::multiply_add<kElement, kElement>(x.sums[m][2 * n + 1], a[m], b[2], b[3]);
      }
    }
  }
}

// sums += left[kRows][kDepth] · right[kDepth][first_column..]
template <Element kElement, u32 kRows, u32 kColumns, u32 kDepth, u32 kWidth>
__device__ __forceinline__ void add_product(Accumulators<kRows, kColumns>& x,
                                            const LeftFragments<kRows, kDepth>& left,
                                            const SharedRows<kWidth>& right, u32 first_column = 0) {
  const u32 lane = own_lane();
  const SharedAddress start = right.at(lane % 16, first_column + lane / 16 * 8);
#pragma unroll
  for (u32 k = 0; k < kDepth / 16; ++k) {
#pragma unroll
    for (u32 n = 0; n < kColumns / 16; ++n) {
      u32 b[4];
      sm80::load_matrices_transposed(b,
                                     start + (16 * k * row_bytes(kWidth) + 16 * n * kElementBytes));
#pragma unroll
      for (u32 m = 0; m < kRows / 16; ++m) {
        sm80::multiply_add<kElement, kElement>(x.sums[m][2 * n], left.words[m][k], b[0], b[1]);
        sm80::multiply_add<kElement, kElement>(x.sums[m][2 * n + 1], left.words[m][k], b[2], b[3]);
      }
    }
  }
}

}  // namespace coda::device::attention
