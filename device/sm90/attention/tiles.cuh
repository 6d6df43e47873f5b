// SPDX-License-Identifier: Apache-2.0
// The sizes of Hopper's attention kernel as values that host and device read: its tiles by the
// sizes of a head, its threads and its shared memory.
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

}  // namespace coda::device::attention::sm90
