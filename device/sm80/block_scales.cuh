// SPDX-License-Identifier: Apache-2.0
// Applies the block scales of 8-bit operands. The partial sum of each K block (128 terms) is
// multiplied by the scales of its row and its column, and then added to the accumulator. B has one
// scale for each block of 128 x 128, as for sm90 (device/sm90/operand_scales.cuh).
#pragma once

#include "device/sm80/config.cuh"

namespace coda::device::sm80 {

// Without scales: nothing.
template <Config kConfig, class Space, bool kHasScales>
struct BlockScales {
  template <class Arguments>
  __device__ __forceinline__ BlockScales(const Arguments&, TileCoord, u32, u32, u32) {}
};

template <Config kConfig, class Space>
struct BlockScales<kConfig, Space, true> {
  static constexpr EpilogueTraits kTraits = Space::kTraits;
  static constexpr u32 kBlocks = kConfig.blocks_m(kTraits);
  // The 64 base columns of a sub-tile share a scale of B in each part: no block of 128 columns, and
  // no half of a wide operand, begins within them.
  static constexpr u32 kSubTiles = kConfig.group_columns(kTraits) / kSubTileColumns;
  float of_rows[kBlocks][2];
  float of_columns[kTraits.parts][kSubTiles];

  // The scales of K block `k`, counted over all segments, for the thread's rows and its group's
  // columns. They are 0 outside the space.
  template <class Arguments>
  __device__ __forceinline__ BlockScales(const Arguments& arguments, TileCoord tile, u32 group_row,
                                         u32 group_column, u32 k) {
    const u32 row = tile.m + group_row + fragment_row(threadIdx.x % kWarpgroupSize, 0);
#pragma unroll
    for (u32 block = 0; block < kBlocks; ++block) {
#pragma unroll
      for (u32 side = 0; side < 2; ++side) {
        const u32 own = row + block * kBlockRows + 8 * side;
        of_rows[block][side] =
            own < Space::rows(arguments) ? Space::scale_of_row(arguments, k, own) : 0.0f;
      }
    }
#pragma unroll
    for (u32 part = 0; part < kTraits.parts; ++part) {
#pragma unroll
      for (u32 i = 0; i < kSubTiles; ++i) {
        const u32 base = tile.n + group_column + i * kSubTileColumns;
        const bool exists = base < Space::columns(arguments);
        if constexpr (kTraits.natural_half != 0) {
          const u32 natural = wide_column(kTraits.natural_half, part, base);
          of_columns[part][i] = exists ? Space::scale_of_column(arguments, k, 0, natural) : 0.0f;
        } else {
          of_columns[part][i] = exists ? Space::scale_of_column(arguments, k, part, base) : 0.0f;
        }
      }
    }
  }

  // The factor for a thread's accumulator i of a fragment of 16 base columns; pairs of columns
  // alternate between two rows.
  __device__ __forceinline__ float of(u32 block, u32 part, u32 fragment, u32 i) const {
    return of_rows[block][i / 2 % 2] * of_columns[part][fragment / kFragments];
  }
};

}  // namespace coda::device::sm80
