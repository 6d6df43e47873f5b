// SPDX-License-Identifier: Apache-2.0
// The sizes of the tensor-core kernels of attention as values that host and device read: the tiles
// of each kernel by the sizes of a head, and the shared memory that they take.
// A kernel has four warps. Each holds `warp_rows` rows of the CTA's own block (of queries, or of
// keys in attention_backward_keys) with fp32 accumulators as wide as a head, and the CTA loops over
// blocks of `columns` tokens of the other side.
// Invariant: a CTA uses at most 99 KiB, which every GPU since Ampere has, and the accumulators of a
// thread leave registers for fragments.
#pragma once

#include "device/config.cuh"

namespace coda::device::attention {

inline constexpr u32 kWarps = 4;
inline constexpr u32 kThreads = kWarps * kWarpSize;
inline constexpr u32 kMostSharedBytes = 99 << 10;
inline constexpr u32 kMostAccumulators = 192;  // of a thread
inline constexpr u32 kMostHeadDim = 256;
// The statistics of a backward are stored for a multiple of this many tokens of each sequence.
inline constexpr u32 kStatisticsBlock = 64;
inline constexpr u32 kSinkThreads = 1024;  // of the kernel that computes the gradient of sinks

// What the text of a kernel depends on.
struct HeadShape {
  Element element = Element::bf16;
  u32 dim = 64;        // of queries and keys
  u32 value_dim = 64;  // of values and outputs
  bool capped = false;
  bool packed = false;  // with documents (AttentionSizes)
  bool sinks = false;   // with sinks (AttentionSizes); in the backward only tiles depend on it

  // attention_backward_keys accumulates this share of the columns in each CTA, because the
  // accumulators of larger heads do not fit. Each part computes all scores.
  constexpr u32 parts() const { return round_up(dim, 16) + round_up(value_dim, 16) > 320 ? 2 : 1; }
  // Columns in shared memory and in accumulators.
  constexpr u32 columns() const { return round_up(dim, 16 * parts()); }
  constexpr u32 value_columns() const { return round_up(value_dim, 16 * parts()); }
};

// Rows in shared memory are 16 bytes longer than their columns. The length is then an odd multiple
// of 16 bytes, and ldmatrix reads eight rows without a bank conflict.
constexpr u32 row_bytes(u32 columns) { return (columns + 8) * kElementBytes; }

struct Tiles {
  u32 warp_rows = 16;
  u32 columns = 16;

  constexpr u32 rows() const { return kWarps * warp_rows; }
};

// With documents, the span that each row sees.
constexpr u32 span_bytes(const HeadShape& head) { return head.packed ? 8 : 0; }

// Shared memory: the queries, one block of keys, one of values.
constexpr u32 forward_bytes(const HeadShape& head, const Tiles& t) {
  const u32 key = row_bytes(head.columns());
  return t.rows() * (key + span_bytes(head)) + t.columns * (key + row_bytes(head.value_columns()));
}
// The queries with two numbers for each, the output's gradients, two blocks of keys, one of values.
constexpr u32 backward_queries_bytes(const HeadShape& head, const Tiles& t) {
  const u32 key = row_bytes(head.columns());
  const u32 value = row_bytes(head.value_columns());
  return t.rows() * (key + value + 8 + span_bytes(head)) + t.columns * (2 * key + value);
}
// The keys and values, two blocks of queries with two numbers for each, one block of the output's
// gradients.
constexpr u32 backward_keys_bytes(const HeadShape& head, const Tiles& t) {
  const u32 key = row_bytes(head.columns());
  const u32 value = row_bytes(head.value_columns());
  return t.rows() * (key + value + span_bytes(head)) + t.columns * (2 * (key + 8) + value);
}

// As many columns as the registers and the shared memory allow, at most `most`. A thread has
// `accumulators` sums of the whole loop, and `products` sums for each element of a block that it
// holds.
template <class Bytes>
constexpr Tiles fitting(const HeadShape& head, u32 warp_rows, u32 most, u32 accumulators,
                        u32 products, Bytes bytes) {
  Tiles tiles{warp_rows, most};
  while (tiles.columns > 16 &&
         (accumulators + products * warp_rows * tiles.columns / kWarpSize > kMostAccumulators ||
          bytes(head, tiles) > kMostSharedBytes))
    tiles.columns -= 16;
  return tiles;
}

constexpr Tiles forward_tiles(const HeadShape& head) {
  const u32 rows = head.value_columns() <= 128 ? 32 : 16;
  const u32 softmax = 3 * rows / 8;  // numbers that it holds
  return fitting(head, rows, 64, rows * head.value_columns() / kWarpSize + softmax, 1,
                 forward_bytes);
}
constexpr Tiles backward_queries_tiles(const HeadShape& head) {
  const u32 rows = larger(head.columns(), head.value_columns()) <= 128 ? 32 : 16;
  // With 128 columns and a soft-cap, 32 keys take all registers, and with sinks they spill.
  const u32 most = rows == 16 || head.columns() <= 80 ? 48 : head.capped && head.sinks ? 16 : 32;
  return fitting(head, rows, most, rows * head.columns() / kWarpSize, 2, backward_queries_bytes);
}
constexpr Tiles backward_keys_tiles(const HeadShape& head) {
  const u32 columns = (head.columns() + head.value_columns()) / head.parts();
  const u32 rows = columns <= 128 ? 32 : 16;
  const u32 products = head.capped ? 3 : 2;  // the compiler keeps slopes too
  return fitting(head, rows, rows == 32 ? 32 : 48, rows * columns / kWarpSize, products,
                 backward_keys_bytes);
}

}  // namespace coda::device::attention
