// SPDX-License-Identifier: Apache-2.0
// Block scales of 8-bit operands: the sum of each K block (128 terms) is multiplied by them when it
// is added to the accumulators. A thread needs the scales of its rows of A and of its tile's
// columns of B; it loads those of the next block while the tensor cores multiply this one, so that
// nothing waits for memory. B may only have blocks of 128 x 128: a scale per column would take a
// register for each two accumulators.
#pragma once

#include "device/layout/space.cuh"

namespace coda::device {

// Columns of a tile that certainly share one scale of B; a tile starts at a multiple of its
// columns.
constexpr u32 columns_of_scale(const GemmConfig& config, const EpilogueTraits& shape) {
  constexpr u32 kSpan = kSwizzleBytes;  // elements of 8 bits in a block of K, and rows of B
  const u32 columns = shape.natural_half != 0 ? config.tile_n : base_columns(config, shape);
  return columns % kSpan == 0 ? kSpan : columns % (kSpan / 2) == 0 ? kSpan / 2 : kSpan / 4;
}

template <GemmConfig kConfig, class Space>
struct OperandScales {
  static constexpr u32 kColumns = columns_of_scale(kConfig, Space::kTraits);
  static constexpr u32 kCount = kConfig.tile_n / kColumns;
  float of_rows[kConfig.blocks_m()][2];
  float of_columns[kCount];

  // The scales of K block `k` for the thread's first row and the tile's first base column. They are
  // 0 outside the space.
  template <class Arguments>
  __device__ __forceinline__ OperandScales(const Arguments& arguments, u32 row, u32 base_column,
                                           u32 k) {
    const u32 rows = Space::rows(arguments);
    constexpr u32 kPart =
        Space::kTraits.natural_half != 0 ? kConfig.tile_n : base_columns(kConfig, Space::kTraits);
    const u32 columns = operand_column(Space::kTraits, Space::columns(arguments));
    const u32 first = operand_column(Space::kTraits, base_column);
#pragma unroll
    for (u32 m = 0; m < kConfig.blocks_m(); ++m) {
#pragma unroll
      for (u32 side = 0; side < 2; ++side) {
        const u32 own = row + m * kWgmmaM + 8 * side;
        of_rows[m][side] = own < rows ? Space::scale_of_row(arguments, k, own) : 0.0f;
      }
    }
#pragma unroll
    for (u32 i = 0; i < kCount; ++i) {
      const u32 column = first + i * kColumns % kPart;
      of_columns[i] = column < columns
                          ? Space::scale_of_column(arguments, k, i * kColumns / kPart, column)
                          : 0.0f;
    }
  }

  // The factor for a thread's accumulator i of the m-th 64 rows; pairs of columns alternate between
  // two rows.
  __device__ __forceinline__ float of(u32 m, u32 i) const {
    return of_rows[m][i / 2 % 2] * of_columns[i / 4 * 8 / kColumns];
  }
};

// For a configuration without scales.
struct NoScales {};

}  // namespace coda::device
