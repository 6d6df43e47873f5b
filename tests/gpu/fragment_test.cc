// SPDX-License-Identifier: Apache-2.0
// The accumulator fragment, the swizzle and stmatrix's addresses, checked element by element: what
// a warp stores by matrices must land where the accumulator's row and column say, as TMA will read
// it.
#include "device/layout/fragment.cuh"

#include <gtest/gtest.h>

#include <array>
#include <set>
#include <vector>

#include "tests/gpu/table_configs.h"

namespace coda::device {
namespace {

TEST(Swizzle, PermutesEachPeriodAndKeepsRows) {
  std::set<u32> met;
  for (u32 offset = 0; offset < 4096; ++offset) {
    const u32 swizzled = swizzle_128b(offset);
    EXPECT_EQ(swizzled / kSwizzleBytes, offset / kSwizzleBytes);
    EXPECT_EQ(swizzled % 16, offset % 16);
    EXPECT_EQ(swizzle_128b(swizzled), offset);
    met.insert(swizzled);
  }
  EXPECT_EQ(met.size(), 4096u);
}

// As NVIDIA describes it: the 16-byte piece of a row is exclusive-ored with the row modulo eight;
// of 64-byte rows with the pair of rows modulo four.
TEST(Swizzle, ExclusiveOrsPieceWithRow) {
  for (u32 row = 0; row < 64; ++row) {
    for (u32 piece = 0; piece < 8; ++piece) {
      EXPECT_EQ(swizzle_128b(row * 128 + piece * 16), row * 128 + (piece ^ (row % 8)) * 16);
    }
    for (u32 piece = 0; piece < 4; ++piece) {
      EXPECT_EQ(swizzle_64b(row * 64 + piece * 16), row * 64 + (piece ^ (row / 2 % 4)) * 16);
    }
  }
}

constexpr u32 kWidths[] = {kSubTileColumns, kHalfSubTileColumns};

// Where TMA looks for a byte of a plane, or puts it.
u32 offset_in_plane(u32 row, u32 column, u32 width) {
  const u32 offset = (row * width + column) * kElementBytes;
  return width == kSubTileColumns ? swizzle_128b(offset) : swizzle_64b(offset);
}

TEST(Fragment, CoversEachElementOnce) {
  for (const u32 columns : {64u, 128u, 192u, 256u}) {
    std::vector<int> met(64 * columns);
    for (u32 thread = 0; thread < kWarpgroupSize; ++thread) {
      for (u32 index = 0; index < columns / 2; ++index) {
        const u32 row = fragment_row(thread, index);
        const u32 column = fragment_column(thread, index);
        ASSERT_LT(row, 64u);
        ASSERT_LT(column, columns);
        ++met[row * columns + column];
      }
    }
    for (const int count : met) ASSERT_EQ(count, 1);
  }
}

// stmatrix.x4 in software: lane l gives the address of row l % 8 of matrix l / 8, and holds in
// register r the elements (lane / 4, 2 * (lane % 4) + {0, 1}) of matrix r.
void expect_accumulators_where_tma_reads_them(u32 width) {
  constexpr int kUnwritten = -1;
  std::vector<int> shared(kWgmmaM * width, kUnwritten);
  for (u32 warp = 0; warp < 4; ++warp) {
    for (u32 fragment = 0; fragment < width / kFragmentColumns; ++fragment) {
      for (u32 matrix = 0; matrix < 4; ++matrix) {
        for (u32 lane = 0; lane < kWarpSize; ++lane) {
          const u32 thread = warp * kWarpSize + lane;
          for (u32 half = 0; half < 2; ++half) {
            const u32 index = fragment * kFragmentElements + matrix * 2 + half;
            const int value = static_cast<int>(fragment_row(thread, index) * width +
                                               fragment_column(thread, index));
            const u32 addressing_lane = matrix * 8 + lane / 4;
            const u32 row_address =
                fragment_offset(warp * kWarpSize + addressing_lane, fragment, width);
            const u32 element = row_address / kElementBytes + 2 * (lane % 4) + half;
            ASSERT_EQ(shared.at(element), kUnwritten);
            shared[element] = value;
          }
        }
      }
    }
  }
  for (u32 row = 0; row < kWgmmaM; ++row) {
    for (u32 column = 0; column < width; ++column) {
      const u32 element = offset_in_plane(row, column, width) / kElementBytes;
      EXPECT_EQ(shared[element], static_cast<int>(row * width + column));
    }
  }
}

TEST(Fragment, StmatrixPutsAccumulatorsWhereTmaReadsThem) {
  for (const u32 width : kWidths) expect_accumulators_where_tma_reads_them(width);
}

TEST(Fragment, FragmentsAreStepsFromTheFirst) {
  for (const u32 width : kWidths) {
    for (const u32 plane : {0u, 8192u, 15u * 8192u + 1024u}) {
      for (u32 thread = 0; thread < kWarpgroupSize; ++thread) {
        for (u32 fragment = 0; fragment < width / kFragmentColumns; ++fragment) {
          EXPECT_EQ((plane + fragment_offset(thread, 0, width)) ^ fragment_step(fragment),
                    plane + fragment_offset(thread, fragment, width));
        }
      }
    }
  }
}

// The eight rows of one matrix lie in different 16-byte bank groups.
TEST(Fragment, StmatrixHasNoBankConflicts) {
  for (const u32 width : kWidths) {
    for (u32 matrix = 0; matrix < 16 * width / kFragmentColumns; ++matrix) {
      const u32 first = matrix % 16 * 8;  // of four warps' four matrices each
      std::set<u32> groups;
      for (u32 row = 0; row < 8; ++row) {
        groups.insert(fragment_offset(first + row, matrix / 16, width) / 16 % 8);
      }
      EXPECT_EQ(groups.size(), 8u);
    }
  }
}

// A thread and the one beside it exchange a pair of each row, so that each has four neighbouring
// columns: the two in its own pair and the two that it is given are those at column_of_four.
TEST(Fragment, FourNeighbouringColumnsComeFromTwoThreads) {
  for (u32 row_of_two = 0; row_of_two < 2; ++row_of_two) {
    std::set<std::pair<u32, u32>> met;
    for (u32 thread = 0; thread < kWarpgroupSize; ++thread) {
      const u32 index =
          thread % 2 * 4 + 2 * row_of_two;  // register of a fragment: left or right half
      std::set<u32> columns;
      for (const u32 owner : {thread, thread ^ 1}) {
        EXPECT_EQ(fragment_row(owner, index), fragment_row(thread, index));
        columns.insert(fragment_column(owner, index));
        columns.insert(fragment_column(owner, index + 1));
      }
      const u32 first = column_of_four(thread);
      EXPECT_EQ(columns, (std::set<u32>{first, first + 1, first + 2, first + 3}));
      for (const u32 column : columns) met.emplace(fragment_row(thread, 2 * row_of_two), column);
    }
    EXPECT_EQ(met.size(), 64u / 2 * kFragmentColumns);
  }
}

TEST(SubTiles, CoverEachTileOnceInEveryConfiguration) {
  for (const GemmConfig& config : valid_configs()) {
    for (const EpilogueTraits& shape : valid_shapes(config)) {
      const u32 columns = base_columns(config, shape);
      const u32 width = sub_tile_width(config, shape);
      const TileCoord tile{.m = 3 * config.tile_m, .n = 5 * columns};
      std::set<std::pair<u32, u32>> origins;
      std::array<u32, kConsumerWarpgroups> own{};
      for (u32 index = 0; index < sub_tiles(config, shape); ++index) {
        const SubTilePlace sub = sub_tile(config, shape, index);
        const TileCoord origin = sub_tile_origin(config, shape, tile, index);
        ASSERT_LT(sub.block_m, config.blocks_m());
        ASSERT_LT(sub.column, columns);
        ASSERT_GE(origin.m, tile.m);
        ASSERT_LE(origin.m + kWgmmaM, tile.m + config.tile_m);
        ASSERT_LE(origin.n + width, tile.n + columns);
        // A consumer counts its own sub-tiles without asking: the n-th has block n / columns.
        const u32 nth = own[sub.warpgroup]++;
        ASSERT_EQ(sub.block_m, nth / sub_tile_columns(config, shape));
        ASSERT_EQ(sub.column, nth % sub_tile_columns(config, shape) * width);
        origins.emplace(origin.m, origin.n);
      }
      EXPECT_EQ(origins.size(), sub_tiles(config, shape));
      EXPECT_EQ(origins.size() * kWgmmaM * width, config.tile_m * columns);
      EXPECT_EQ(own[0], sub_tiles_per_warpgroup(config, shape));
      EXPECT_EQ(own[1], config.schedule == Schedule::cooperative ? own[0] : 0);
    }
  }
}

}  // namespace
}  // namespace coda::device
