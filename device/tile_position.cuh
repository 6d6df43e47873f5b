// SPDX-License-Identifier: Apache-2.0
// Which values a thread of a kernel without a product holds: eight neighbouring base columns of one
// row, or of a few rows below each other. Pure arithmetic, tested on the host.
// Invariant: 64 base columns of a row, which one row partial covers, lie in eight neighbouring
// lanes of one warp; groups of 128 and 256 columns that divide the width never straddle two warps.
#pragma once

#include "device/types.cuh"

namespace coda::device {

inline constexpr u32 kThreadColumns = 8;
inline constexpr u32 kPartialSpan = 64;  // columns of a row partial, rows of a column partial
inline constexpr u32 kSpanThreads = kPartialSpan / kThreadColumns;
inline constexpr u32 kTileThreads = 256;
inline constexpr u32 kTileWarps = kTileThreads / 32;
// A block that makes column partials covers 64 rows of so many columns; a warp has 8 of the rows.
inline constexpr u32 kBlockColumns = 32 * kThreadColumns;
inline constexpr u32 kWarpRows = kPartialSpan / kTileWarps;

struct TilePosition {
  u32 row = 0;     // the thread's first row; may lie outside
  u32 column = 0;  // its first base column; may lie outside
  u32 valid = 0;   // how many of its eight columns exist
};

constexpr u32 valid_columns(u32 column, u32 columns) {
  return column < columns ? smaller(kThreadColumns, columns - column) : 0;
}

// Spans of 64 columns, numbered along the rows; each with `thread_rows` rows.
constexpr TilePosition span_position(u32 block, u32 thread, u32 columns, u32 thread_rows) {
  const u32 spans = ceil_div(columns, kPartialSpan);
  const u32 span = block * (kTileThreads / kSpanThreads) + thread / kSpanThreads;
  const u32 column = span % spans * kPartialSpan + thread % kSpanThreads * kThreadColumns;
  return {
      .row = span / spans * thread_rows, .column = column, .valid = valid_columns(column, columns)};
}
constexpr u64 span_blocks(u64 rows, u64 columns, u64 thread_rows) {
  const u64 spans = (columns + kPartialSpan - 1) / kPartialSpan;
  const u64 groups = (rows + thread_rows - 1) / thread_rows;
  const u64 block_spans = kTileThreads / kSpanThreads;
  return (spans * groups + block_spans - 1) / block_spans;
}

// Blocks of 64 rows by 256 columns, numbered along the rows; each thread has 8 rows.
constexpr TilePosition block_position(u32 block, u32 thread, u32 columns) {
  const u32 across = ceil_div(columns, kBlockColumns);
  const u32 column = block % across * kBlockColumns + thread % 32 * kThreadColumns;
  return {.row = block / across * kPartialSpan + thread / 32 * kWarpRows,
          .column = column,
          .valid = valid_columns(column, columns)};
}
constexpr u64 column_blocks(u64 rows, u64 columns) {
  return (columns + kBlockColumns - 1) / kBlockColumns * ((rows + kPartialSpan - 1) / kPartialSpan);
}

// Where member `member` of base column `column` stands in a row of pairs: each 2 * half columns
// hold half first members, then half second ones.
constexpr u32 pair_column(u32 column, u32 half, u32 member) {
  return column / half * (2 * half) + member * half + column % half;
}

}  // namespace coda::device
