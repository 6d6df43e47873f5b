// SPDX-License-Identifier: Apache-2.0
// The sizes of Hopper's attention kernels as values that host and device read: their tiles by the
// sizes of a head, their threads, their shared memory and the scratch of the backward.
// Shared memory holds operands as wgmma reads them: panels of 64 columns, whose rows are 128 bytes
// with TMA's swizzle.
#pragma once

#include "device/attention/tiles.cuh"
#include "device/layout/shared_layout.cuh"

namespace coda::device::attention::sm90 {

struct ForwardTiles {
  u32 consumers = 2;  // warpgroups, with 64 queries each
  u32 keys = 128;     // of a block
  u32 stages = 2;     // blocks of keys in shared memory, and as many of values
  // Only one consumer at a time issues products, and the others compute their softmax meanwhile.
  bool takes_turns = true;
  u32 producer_registers = 40;
  u32 consumer_registers = 232;

  constexpr u32 queries() const { return consumers * kWgmmaM; }
  constexpr u32 threads() const { return (consumers + 1) * kWarpgroupSize; }
};

constexpr u32 panels(u32 columns) { return ceil_div(columns, kBlockK); }
constexpr u32 panel_bytes(u32 rows) { return rows * kSwizzleBytes; }
constexpr u32 block_bytes(u32 rows, u32 columns) { return panels(columns) * panel_bytes(rows); }

// Columns of the output's accumulators. Those behind the head's have values of no meaning, which
// are not stored.
constexpr u32 output_columns(const HeadShape& head) {
  return head.value_dim <= 64 ? 64 : head.value_dim <= 128 ? 128 : 256;
}

// Offsets in shared memory.
struct ForwardLayout {
  u32 keys, values, spans, barriers, bytes;
};
constexpr ForwardLayout forward_layout(const HeadShape& head, const ForwardTiles& tiles) {
  ForwardLayout layout{};
  layout.keys = block_bytes(tiles.queries(), head.dim);
  layout.values = layout.keys + tiles.stages * block_bytes(tiles.keys, head.dim);
  layout.spans = layout.values + tiles.stages * block_bytes(tiles.keys, output_columns(head));
  layout.barriers = layout.spans + tiles.queries() * span_bytes(head);
  layout.bytes = layout.barriers + (2 + 4 * tiles.stages) * kBarrierBytes;
  return layout;
}

// The sizes of heads that the kernel takes: those that leave few of the accumulators' columns
// unused. For others, device/attention/ has kernels.
constexpr bool takes(const HeadShape& head) {
  return head.dim >= 64 && head.dim <= kMostHeadDim && head.dim % kWgmmaK == 0 &&
         head.value_dim <= kMostHeadDim && head.value_dim % 32 == 0 &&
         4 * head.value_dim >= 3 * output_columns(head);
}

constexpr ForwardTiles hopper_tiles(const HeadShape& head) {
  if (output_columns(head) == 256 || head.dim > 192)
    return {.keys = 64, .producer_registers = 24, .consumer_registers = 240};
  // Three consumers have few registers: with a soft-cap and documents, they spill.
  if (output_columns(head) == 64 && !(head.capped && head.packed))
    return {.consumers = 3, .producer_registers = 32, .consumer_registers = 160};
  return {};
}

// The backward: a CTA has a block of keys, and each of its two consumers has 64 of them. The CTA
// loops over blocks of queries.
inline constexpr u32 kBackwardConsumers = 2;
inline constexpr u32 kBackwardKeys = kBackwardConsumers * kWgmmaM;

struct BackwardTiles {
  u32 queries = 64;  // of a block
  u32 stages = 2;    // blocks of queries in shared memory, and as many of dy
  u32 producer_registers = 24;
  u32 consumer_registers = 240;

  constexpr u32 threads() const { return (kBackwardConsumers + 1) * kWarpgroupSize; }
};

// Heads of 96 have accumulators of 128 columns, as in the forward.
constexpr bool takes_backward(const HeadShape& head) {
  return head.dim == head.value_dim && (head.dim == 64 || head.dim == 96 || head.dim == 128);
}

// A consumer computes dq of 64 queries and 64 columns: half of the queries, or half of the columns.
constexpr BackwardTiles backward_tiles(const HeadShape& head) {
  return {.queries = output_columns(head) == 64 ? 128u : 64u};
}
inline constexpr u32 kQuerySumsBytes = kWgmmaM * 64 * 4;  // of a consumer, in fp32
inline constexpr u32 kSumsPitch = kWarpgroupSize * 16;    // four numbers of each thread

// Offsets in shared memory.
struct BackwardLayout {
  u32 values, queries, dy, gradients, query_sums, subtracted, dots, spans, barriers, ticket, bytes;
};
constexpr BackwardLayout backward_layout(const HeadShape& head, const BackwardTiles& tiles) {
  const u32 vector_bytes = tiles.queries * 4;
  BackwardLayout layout{};
  layout.values = block_bytes(kBackwardKeys, head.dim);
  layout.queries = layout.values + block_bytes(kBackwardKeys, head.value_dim);
  layout.dy = layout.queries + tiles.stages * block_bytes(tiles.queries, head.dim);
  layout.gradients = layout.dy + tiles.stages * block_bytes(tiles.queries, head.value_dim);
  layout.query_sums = layout.gradients + 2 * block_bytes(kBackwardKeys, tiles.queries);
  layout.subtracted = layout.query_sums + kBackwardConsumers * kQuerySumsBytes;
  layout.dots = layout.subtracted + tiles.stages * vector_bytes;
  layout.spans = layout.dots + tiles.stages * vector_bytes;
  layout.barriers = layout.spans + kBackwardKeys * span_bytes(head);
  layout.ticket = layout.barriers + (2 + 4 * tiles.stages + 2 * kBackwardConsumers) * kBarrierBytes;
  layout.bytes = layout.ticket + 16;
  return layout;
}

// The kernel before the backward: four threads have a token.
inline constexpr u32 kRowsThreads = 256;
inline constexpr u32 kRowsTokens = kRowsThreads / 4;

// The scratch memory of a backward: offsets in bytes. First the number of the next tile.
struct BackwardScratch {
  u64 progress;    // u32 for each key-value head and block of keys
  u64 subtracted;  // fp32 [sequences, heads, padded tokens]: what is subtracted from exponents
  u64 dots;        // the same of dy·y
  u64 query_sums;  // fp32 [sequences, heads, blocks of queries, queries * columns]
  u64 bytes;

  constexpr BackwardScratch(u32 sequences, u32 tokens, u32 heads, u32 kv_heads,
                            const HeadShape& head) {
    const u32 padded = round_up(tokens, kBackwardKeys);
    const u64 rows = static_cast<u64>(sequences) * heads * padded;
    const u64 blocks = static_cast<u64>(sequences) * kv_heads * (padded / kBackwardKeys);
    progress = 128;
    subtracted = progress + (blocks + 31) / 32 * 128;
    dots = subtracted + rows * 4;
    query_sums = dots + rows * 4;
    bytes = query_sums + rows * output_columns(head) * 4;
  }
};

}  // namespace coda::device::attention::sm90
