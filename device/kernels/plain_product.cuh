// SPDX-License-Identifier: Apache-2.0
// A GEMM without tensor cores: operands of any stored type, order and alignment are read as fp32,
// multiplied and added in fp32. For operands that tensor cores do not support (fp32, two different
// types). Correct but slow.
// Invariant: sums run along K in order, so bits do not depend on the tile.
#pragma once

#include "device/element.cuh"
#include "device/kernels/plain_shape.cuh"
#include "device/ptx/lanes.cuh"

namespace coda::device {

inline constexpr u32 kPlainDepth = 16;  // step along K
inline constexpr u32 kPlainOwn = 4;     // rows and columns per thread, 16 apart
inline constexpr u32 kPlainStep = kPlainTile / kPlainOwn;

// A block's part of op(A) and op(B) for one step along K.
struct PlainTiles {
  float a[kPlainDepth][kPlainTile + 1];
  float b[kPlainDepth][kPlainTile + 1];
};

struct PlainPosition {
  u32 row;  // first of the block
  u32 column;
  u32 rows;  // of the result
  u32 columns;
};

__device__ __forceinline__ PlainPosition plain_position(u32 block, u32 rows, u32 columns) {
  const u32 across = columns / kPlainTile + (columns % kPlainTile != 0 ? 1 : 0);
  return {.row = block / across * kPlainTile,
          .column = block % across * kPlainTile,
          .rows = rows,
          .columns = columns};
}

// Scales of an 8-bit operand: one for each `rows` rows and `span` elements of K.
struct PlainScales {
  u64 tensor = 0;  // none
  u32 stride = 0;
  u32 rows = 1;
  u32 span = 128;

  __device__ __forceinline__ float of(u32 row, u32 k) const {
    if (tensor == 0) return 1.0f;
    return load_element<Element::f32>(tensor, static_cast<u64>(row / rows) * stride + k / span);
  }
};

// Loads an operand's tile, which is stored as [K, outer] (kIsKFirst) or [outer, K].
template <Element kStored, bool kIsKFirst>
__device__ __forceinline__ void load_plain(float (&tile)[kPlainDepth][kPlainTile + 1], u64 tensor,
                                           u32 stride, u32 first, u32 outer, u32 first_k, u32 k,
                                           const PlainScales& scales) {
  for (u32 i = thread_index(); i < kPlainDepth * kPlainTile; i += kPlainThreads) {
    // Neighbouring threads read neighbouring elements.
    const u32 own = kIsKFirst ? i % kPlainTile : i / kPlainDepth;
    const u32 own_k = kIsKFirst ? i / kPlainTile : i % kPlainDepth;
    const u32 at = first + own;
    const u32 at_k = first_k + own_k;
    const u64 index =
        kIsKFirst ? static_cast<u64>(at_k) * stride + at : static_cast<u64>(at) * stride + at_k;
    tile[own_k][own] =
        at < outer && at_k < k ? load_element<kStored>(tensor, index) * scales.of(at, at_k) : 0.0f;
  }
}

// Adds one K segment. A is stored [rows, K], or [K, rows] if kTransposeA; B [K, columns], or
// [columns, K] if kTransposeB.
template <Element kA, bool kTransposeA, Element kB, bool kTransposeB>
__device__ __forceinline__ void add_plain_product(float (&sums)[kPlainOwn][kPlainOwn],
                                                  PlainTiles& tiles, u64 a, u32 stride_a, u64 b,
                                                  u32 stride_b, u32 k, const PlainPosition& at,
                                                  const PlainScales& scales_a = {},
                                                  const PlainScales& scales_b = {}) {
  const u32 own_row = thread_index() / kPlainStep;
  const u32 own_column = thread_index() % kPlainStep;
  for (u32 first = 0; first < k; first += kPlainDepth) {
    load_plain<kA, kTransposeA>(tiles.a, a, stride_a, at.row, at.rows, first, k, scales_a);
    load_plain<kB, !kTransposeB>(tiles.b, b, stride_b, at.column, at.columns, first, k, scales_b);
    synchronize_block();
#pragma unroll
    for (u32 depth = 0; depth < kPlainDepth; ++depth) {
#pragma unroll
      for (u32 i = 0; i < kPlainOwn; ++i) {
#pragma unroll
        for (u32 j = 0; j < kPlainOwn; ++j) {
          sums[i][j] = fmaf(tiles.a[depth][own_row + i * kPlainStep],
                            tiles.b[depth][own_column + j * kPlainStep], sums[i][j]);
        }
      }
    }
    synchronize_block();
  }
}

template <Element kStored>
__device__ __forceinline__ void store_plain(u64 tensor, u32 stride,
                                            const float (&sums)[kPlainOwn][kPlainOwn],
                                            const PlainPosition& at) {
#pragma unroll
  for (u32 i = 0; i < kPlainOwn; ++i) {
    const u32 row = at.row + thread_index() / kPlainStep + i * kPlainStep;
#pragma unroll
    for (u32 j = 0; j < kPlainOwn; ++j) {
      const u32 column = at.column + thread_index() % kPlainStep + j * kPlainStep;
      if (row < at.rows && column < at.columns) {
        store_element<kStored>(tensor, static_cast<u64>(row) * stride + column, sums[i][j]);
      }
    }
  }
}

}  // namespace coda::device
