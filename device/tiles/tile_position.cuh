// SPDX-License-Identifier: Apache-2.0
// The assignment of values to threads in a kernel without a GEMM: a thread has eight neighbouring
// base columns of one row or of a few consecutive rows. Pure arithmetic, tested on the host.
// Invariant: the 64 base columns of a row partial belong to eight neighbouring lanes of one warp;
// groups of 128 and 256 columns that divide the width never cross warps.
#pragma once

#include "device/types.cuh"

namespace coda::device {

inline constexpr u32 kThreadColumns = 8;
inline constexpr u32 kPartialSpan = 64;  // columns of a row partial, rows of a column partial
inline constexpr u32 kSpanThreads = kPartialSpan / kThreadColumns;
inline constexpr u32 kTileThreads = 256;
inline constexpr u32 kTileWarps = kTileThreads / 32;
// A block with column partials covers 64 rows of this many columns; each warp has 8 rows.
inline constexpr u32 kBlockColumns = 32 * kThreadColumns;
inline constexpr u32 kWarpRows = kPartialSpan / kTileWarps;

// A divisor that is known before the launch: division becomes a multiplication and a shift. An
// ordinary division takes twenty dependent instructions.
struct Divisor {
  u32 value;
  u32 multiplier;
  u32 shift;
};
constexpr Divisor divisor_of(u32 value) {
  u32 shift = 31;
  while ((u64{1} << (shift - 31)) < value) ++shift;
  const u64 power = u64{1} << shift;
  return {
      .value = value, .multiplier = static_cast<u32>((power + value - 1) / value), .shift = shift};
}
// For dividends below 2^31.
constexpr u32 operator/(u32 dividend, const Divisor& by) {
  return static_cast<u32>(static_cast<u64>(dividend) * by.multiplier >> by.shift);
}
constexpr u32 operator%(u32 dividend, const Divisor& by) {
  return dividend - dividend / by * by.value;
}

constexpr u32 value_of(const Divisor& by) { return by.value; }
constexpr u32 value_of(u32 by) { return by; }

// For the columns of a thread's elements: without vectors each element needs a division. The
// branches of an ordinary division keep the assembler from computing all addresses ahead in
// registers.
template <bool kVector>
constexpr auto column_divisor(const Divisor& by) {
  if constexpr (kVector) {
    return by;
  } else {
    return by.value;
  }
}

struct TilePosition {
  u32 row = 0;     // first row; may be outside
  u32 column = 0;  // first base column; may be outside
  u32 valid = 0;   // number of its eight columns that exist
};

constexpr u32 valid_columns(u32 column, u32 columns) {
  return column < columns ? smaller(kThreadColumns, columns - column) : 0;
}

// If columns are reduced, threads outside read whole vectors of the last columns and the last row,
// and their results are masked. So loads have no condition, and all addresses are computed before
// the loads. With conditions the assembler computes each address after its condition and has too
// few scoreboard entries, so that each load waits for the previous one.
template <bool kVector>
constexpr u32 loaded_column(u32 column, u32 columns) {
  return kVector ? smaller(column, columns - kThreadColumns) : column;
}
template <bool kVector>
constexpr u32 loaded_columns(u32 valid) {
  return kVector ? kThreadColumns : valid;
}

// Spans of 64 columns, numbered along the rows; a row has `spans` of them; each has `thread_rows`
// rows.
template <class Spans>
constexpr TilePosition span_position(u32 block, u32 thread, u32 columns, const Spans& spans,
                                     u32 thread_rows) {
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

// Whether the kernel can use vectors in this block: each of its threads has eight columns, or lies
// behind the last column. Only in the last span of a row can a thread have one to seven columns.
constexpr bool are_spans_whole(u32 block, u32 columns, u32 spans) {
  constexpr u32 kBlockSpans = kTileThreads / kSpanThreads;
  return columns % kThreadColumns == 0 || block * kBlockSpans % spans + kBlockSpans < spans;
}

// Blocks of 64 rows by 256 columns, numbered along the rows; each thread has 8 rows.
constexpr TilePosition block_position(u32 block, u32 thread, u32 columns) {
  const u32 across = ceil_div(columns, kBlockColumns);
  const u32 column = block % across * kBlockColumns + thread % 32 * kThreadColumns;
  return {.row = block / across * kPartialSpan + thread / 32 * kWarpRows,
          .column = column,
          .valid = valid_columns(column, columns)};
}
// As are_spans_whole(), for blocks of 64 rows by 256 columns.
constexpr bool is_block_whole(u32 block, u32 columns) {
  const u32 end = (block % ceil_div(columns, kBlockColumns) + 1) * kBlockColumns;
  return columns % kThreadColumns == 0 || end <= columns;
}
constexpr u64 column_blocks(u64 rows, u64 columns) {
  return (columns + kBlockColumns - 1) / kBlockColumns * ((rows + kPartialSpan - 1) / kPartialSpan);
}

// The position of member `member` of base column `column` in a row of pairs: each 2 * half columns
// hold half first members, then half second members.
template <class Half>
constexpr u32 pair_column(u32 column, const Half& half, u32 member) {
  return column + (column / half + member) * value_of(half);
}

// The columns of a thread's elements, as a function of the element. With vectors they are adjacent
// (or `kStride` apart), and the first column is computed once before all loads; otherwise each load
// would wait for the address arithmetic of the previous ones.
template <bool kVector, u32 kStride = 1, class Column>
constexpr auto neighbours(const Column& column) {
  if constexpr (kVector) {
    return [first = column(0)](u32 i) { return first + kStride * i; };
  } else {
    return column;
  }
}

}  // namespace coda::device
