// SPDX-License-Identifier: Apache-2.0
// Every element of a tile space belongs to one thread, whatever its shape; the columns of a partial
// and of a group lie in one warp; and every partial of a line is read once.
#include "device/tiles/tile_position.cuh"

#include <gtest/gtest.h>

#include <vector>

#include "base/columns.h"

namespace coda::device {
namespace {

constexpr u32 kSizes[] = {1, 2, 7, 8, 9, 63, 64, 65, 127, 128, 200, 256, 257, 320, 515};

TEST(TilePosition, SpansCoverEachElementOnce) {
  for (const u32 rows : kSizes) {
    for (const u32 columns : kSizes) {
      for (const u32 thread_rows : {1u, 2u, 4u}) {
        std::vector<int> met(rows * columns);
        const u64 blocks = span_blocks(rows, columns, thread_rows);
        const Divisor spans = divisor_of(ceil_div(columns, kPartialSpan));
        for (u32 block = 0; block < blocks; ++block) {
          for (u32 thread = 0; thread < kTileThreads; ++thread) {
            const TilePosition at = span_position(block, thread, columns, spans, thread_rows);
            ASSERT_EQ(at.column % kThreadColumns, 0u);
            for (u32 r = 0; r < thread_rows && at.row + r < rows; ++r) {
              for (u32 i = 0; i < at.valid; ++i) ++met.at((at.row + r) * columns + at.column + i);
            }
          }
        }
        for (const int count : met) ASSERT_EQ(count, 1) << rows << " x " << columns;
      }
    }
  }
}

TEST(TilePosition, BlocksCoverEachElementOnceAndOnly64Rows) {
  for (const u32 rows : kSizes) {
    for (const u32 columns : kSizes) {
      std::vector<int> met(rows * columns);
      for (u32 block = 0; block < column_blocks(rows, columns); ++block) {
        const u32 span = block_position(block, 0, columns).row / kPartialSpan;
        const u32 first = block_position(block, 0, columns).column;
        for (u32 thread = 0; thread < kTileThreads; ++thread) {
          const TilePosition at = block_position(block, thread, columns);
          ASSERT_EQ(at.column, first + thread % 32 * kThreadColumns);
          for (u32 r = 0; r < kWarpRows; ++r) {
            ASSERT_EQ((at.row + r) / kPartialSpan, span);
            if (at.row + r >= rows) continue;
            for (u32 i = 0; i < at.valid; ++i) ++met.at((at.row + r) * columns + at.column + i);
          }
        }
      }
      for (const int count : met) ASSERT_EQ(count, 1) << rows << " x " << columns;
    }
  }
}

TEST(TilePosition, ABlockIsWholeIfNoThreadHasAPartOfAVector) {
  const auto is_whole = [](const auto& position) {
    for (u32 thread = 0; thread < kTileThreads; ++thread)
      if (position(thread).valid % kThreadColumns != 0) return false;
    return true;
  };
  for (const u32 columns : {1u, 8u, 257u, 320u, 515u, 2111u, 2112u, 2113u, 4099u}) {
    const u32 count = ceil_div(columns, kPartialSpan);
    const Divisor spans = divisor_of(count);
    u32 whole = 0;
    for (u32 block = 0; block < span_blocks(70, columns, 2); ++block) {
      const bool said = are_spans_whole(block, columns, count);
      whole += said;
      ASSERT_LE(said, is_whole([&](u32 thread) {
                  return span_position(block, thread, columns, spans, 2);
                }));
    }
    EXPECT_EQ(whole > 0, columns % kThreadColumns == 0 || count > kTileThreads / kSpanThreads);
    for (u32 block = 0; block < column_blocks(70, columns); ++block)
      ASSERT_EQ(is_block_whole(block, columns),
                is_whole([&](u32 thread) { return block_position(block, thread, columns); }));
  }
}

// Threads exchange with lanes that differ by the bits of a mask: their columns must be those of the
// same row of the same span, or of the same group.
TEST(TilePosition, SpansAndGroupsLieInOneWarp) {
  for (const u32 group : {64u, 128u, 256u}) {
    for (u32 groups = 1; groups <= 9; ++groups) {
      const u32 columns = group * groups;
      const Divisor spans = divisor_of(columns / kPartialSpan);
      for (u32 block = 0; block < 7; ++block) {
        for (u32 thread = 0; thread < kTileThreads; ++thread) {
          for (u32 mask = 1; mask < group / kThreadColumns; mask *= 2) {
            for (const bool by_blocks : {false, true}) {
              const auto position = [&](u32 t) {
                return by_blocks ? block_position(block, t, columns)
                                 : span_position(block, t, columns, spans, 2);
              };
              const TilePosition own = position(thread);
              const TilePosition other = position(thread ^ mask);
              ASSERT_EQ(own.row, other.row);
              ASSERT_EQ(own.column / group, other.column / group);
              ASSERT_EQ(own.column / kThreadColumns ^ mask, other.column / kThreadColumns);
            }
          }
        }
      }
    }
  }
}

// Every dividend below 2^31 and every divisor.
TEST(TilePosition, DivisorsDivide) {
  std::vector<u32> values = {0, 1, 2, 3, 0x7fffffffu, 0x80000000u, 0x80000001u, ~0u};
  for (u32 shift = 2; shift < 31; ++shift) {
    for (const u32 near : {(1u << shift) - 1, 1u << shift, (1u << shift) + 1}) {
      values.push_back(near);
    }
  }
  for (u32 i = 0, random = 1; i < 400; ++i) {
    random = random * 1664525u + 1013904223u;
    values.push_back(random >> i % 31);
  }
  for (const u32 by : values) {
    if (by == 0) continue;
    const Divisor divisor = divisor_of(by);
    for (const u32 value : values) {
      const u32 multiple = value / by * by;
      for (const u32 dividend : {value, multiple, multiple - 1}) {
        if (dividend > 0x7fffffffu) continue;
        ASSERT_EQ(dividend / divisor, dividend / by) << dividend << " / " << by;
        ASSERT_EQ(dividend % divisor, dividend % by) << dividend << " % " << by;
      }
    }
  }
}

TEST(TilePosition, PairsAreThoseOfThePrograms) {
  for (const u32 half : {1u, 2u, 8u, 24u, 64u}) {
    for (u32 column = 0; column < 5 * half; ++column) {
      for (const int member : {0, 1}) {
        EXPECT_EQ(pair_column(column, divisor_of(half), static_cast<u32>(member)),
                  static_cast<u32>(coda::pair_column(column, member, 2 * half)));
      }
    }
  }
}

}  // namespace
}  // namespace coda::device
