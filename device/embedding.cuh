// SPDX-License-Identifier: Apache-2.0
// Rows of a table by index, and the adjoint: each row of the table's gradient is the sum of the
// rows that its tokens received, in the order of the tokens, so results repeat bitwise without a
// sort and without scratch memory.
#pragma once

#include "device/config.cuh"
#include "device/element.cuh"

namespace coda::device {

struct MatrixRows {
  u64 data;
  u32 stride;  // elements between rows
};

// A CTA a token. A token outside the table gets NaN: a kernel cannot throw.
template <Stored kTable, Stored kOut>
__device__ __forceinline__ void embedding_forward(u32 columns, u32 table_rows, MatrixRows table,
                                                  const int* ids, MatrixRows out) {
  const u32 token = blockIdx.x;
  const u32 id = static_cast<u32>(ids[token]);
  const u64 from = static_cast<u64>(id) * table.stride;
  const u64 to = static_cast<u64>(token) * out.stride;
  for (u32 column = threadIdx.x; column < columns; column += blockDim.x) {
    const float value = id < table_rows ? load_element<kTable>(table.data, from + column)
                                        : __int_as_float(0x7fffffff);
    store_element<kOut>(out.data, to + column, value);
  }
}

inline constexpr u32 kEmbeddingThreads = 256;
inline constexpr u32 kEmbeddingRows = 8;     // of the table, for one CTA
inline constexpr u32 kEmbeddingColumns = 4;  // for one thread, kEmbeddingThreads apart

// A CTA makes 8 rows by 1024 columns of the gradient: it looks through all tokens, 256 at a time,
// lists those that fall into its rows in ascending order, and adds theirs. `added` (optional) is
// what the gradient is added to.
template <Stored kIn, Stored kAdded, Stored kOut, bool kAdds>
__device__ __forceinline__ void embedding_backward(u32 columns, u32 table_rows, u32 tokens,
                                                   u32 column_blocks, MatrixRows dx, const int* ids,
                                                   MatrixRows added, MatrixRows out) {
  __shared__ u32 matches[kEmbeddingThreads];  // token * 8 + row, ascending
  __shared__ u32 warp_counts[kEmbeddingThreads / kWarpSize];
  const u32 first_row = blockIdx.x / column_blocks * kEmbeddingRows;
  const u32 first_column =
      blockIdx.x % column_blocks * (kEmbeddingThreads * kEmbeddingColumns) + threadIdx.x;
  const u32 warp = threadIdx.x / kWarpSize;
  const u32 lane = threadIdx.x % kWarpSize;
  float sums[kEmbeddingRows][kEmbeddingColumns];
#pragma unroll
  for (u32 row = 0; row < kEmbeddingRows; ++row) {
#pragma unroll
    for (u32 i = 0; i < kEmbeddingColumns; ++i) {
      const u32 column = first_column + i * kEmbeddingThreads;
      sums[row][i] = 0;
      if constexpr (kAdds) {
        if (first_row + row < table_rows && column < columns) {
          sums[row][i] = load_element<kAdded>(
              added.data, static_cast<u64>(first_row + row) * added.stride + column);
        }
      }
    }
  }
  for (u32 base = 0; base < tokens; base += kEmbeddingThreads) {
    const u32 token = base + threadIdx.x;
    const u32 id = token < tokens ? static_cast<u32>(ids[token]) : ~0u;
    const bool mine = id >= first_row && id < first_row + kEmbeddingRows;
    const u32 ballot = __ballot_sync(~0u, mine);
    if (lane == 0) warp_counts[warp] = __popc(ballot);
    __syncthreads();
    u32 count = 0;
    u32 before = 0;
#pragma unroll
    for (u32 other = 0; other < kEmbeddingThreads / kWarpSize; ++other) {
      if (other == warp) before = count;
      count += warp_counts[other];
    }
    if (mine) {
      const u32 position = before + __popc(ballot & ((1u << lane) - 1));
      matches[position] = token * kEmbeddingRows + (id - first_row);
    }
    __syncthreads();
    for (u32 i = 0; i < count; ++i) {
      const u32 match = matches[i];
      const u64 from = static_cast<u64>(match / kEmbeddingRows) * dx.stride;
#pragma unroll
      for (u32 j = 0; j < kEmbeddingColumns; ++j) {
        const u32 column = first_column + j * kEmbeddingThreads;
        const float value = column < columns ? load_element<kIn>(dx.data, from + column) : 0.0f;
#pragma unroll
        for (u32 row = 0; row < kEmbeddingRows; ++row) {
          sums[row][j] += match % kEmbeddingRows == row ? value : 0.0f;  // no index at run time
        }
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (u32 row = 0; row < kEmbeddingRows; ++row) {
#pragma unroll
    for (u32 i = 0; i < kEmbeddingColumns; ++i) {
      const u32 column = first_column + i * kEmbeddingThreads;
      if (first_row + row < table_rows && column < columns) {
        store_element<kOut>(out.data, static_cast<u64>(first_row + row) * out.stride + column,
                            sums[row][i]);
      }
    }
  }
}

}  // namespace coda::device
