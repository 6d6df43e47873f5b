// SPDX-License-Identifier: Apache-2.0
// The configuration of a GEMM kernel for GPUs that use mma.sync, as a value that host and device
// read: the tile, and how the kernel's two groups of four warps share the tile. A group stores its
// accumulators in the layout of a wgmma warpgroup: each of the four warps has 16 of every 64 rows,
// and each thread has the same rows and columns as in wgmma. So both targets share the source of
// their epilogues.
// Invariant: a kernel is compiled only for a configuration and tile spaces for which `is_valid` is
// true.
#pragma once

#include "device/layout/shared_layout.cuh"

namespace coda::device::sm80 {

inline constexpr u32 kGroups = 2;  // of kWarpgroupSize threads each
inline constexpr u32 kThreads = kGroups * kWarpgroupSize;
inline constexpr u32 kBlockRows = kWgmmaM;  // rows that the four warps of a group share
inline constexpr u32 kStepK = kWgmmaK;      // depth of one instruction along K: 32 bytes

// The largest tile whose sums are promoted. A thread then also has the fragments of A for a whole
// stage and the sums of a fragment, for which a larger tile leaves no registers.
inline constexpr u32 kMostPromoted = 128 * 128;

struct Config {
  u32 tile_m = 128;
  u32 tile_n = 128;
  u32 stages = 3;
  OperandLayout layout = OperandLayout::tn;
  Element element = Element::bf16;    // of A
  Element element_b = Element::bf16;  // of B, of the same width
  // As in GemmConfig (device/config.cuh).
  bool promotes = false;
  bool has_scales = false;

  // Elements of a stage along K.
  constexpr u32 block_k() const { return kSwizzleBytes / bytes_of(element); }
  constexpr Major major_a() const {
    return layout == OperandLayout::nt || layout == OperandLayout::tt ? Major::outer : Major::k;
  }
  constexpr Major major_b() const {
    return layout == OperandLayout::tn || layout == OperandLayout::tt ? Major::k : Major::outer;
  }
  constexpr u32 stage_bytes_a() const { return tile_m * kSwizzleBytes; }
  constexpr u32 stage_bytes() const { return (tile_m + tile_n) * kSwizzleBytes; }

  constexpr u32 base_columns(const EpilogueTraits& shape) const { return tile_n / shape.parts; }
  // Whether each group has all rows and half of the columns; else each group has half of the rows.
  constexpr bool splits_columns(const EpilogueTraits& shape) const {
    return base_columns(shape) % (kGroups * larger(kSubTileColumns, shape.group_span)) == 0;
  }
  constexpr u32 group_columns(const EpilogueTraits& shape) const {
    return base_columns(shape) / (splits_columns(shape) ? kGroups : 1);
  }
  // Blocks of 64 rows that one group has.
  constexpr u32 blocks_m(const EpilogueTraits& shape) const {
    return tile_m / kBlockRows / (splits_columns(shape) ? 1 : kGroups);
  }
};

// Shared memory holds the stages of both operands, then two scratch buffers for each group. The
// warps of a group exchange values through the group's scratch buffers. After the mainloop, the
// planes of the epilogue take the place of the stages: each group has slots, each for the planes of
// one sub-tile.
constexpr u32 scratch_at(const Config& config) { return config.stages * config.stage_bytes(); }
constexpr u32 slot_bytes(const EpilogueTraits& shape) { return shape.planes() * kSubTileBytes; }
// The number of slots of a group, at most one for each of its sub-tiles.
constexpr u32 slots(const Config& config, const EpilogueTraits& shape) {
  const u32 sub_tiles = config.blocks_m(shape) * (config.group_columns(shape) / kSubTileColumns);
  return shape.staged() ? smaller(sub_tiles, scratch_at(config) / (kGroups * slot_bytes(shape)))
                        : sub_tiles;
}

constexpr bool is_valid(const Config& config, const EpilogueTraits& shape) {
  const bool is_tn = config.layout == OperandLayout::tn;
  if (!are_operands(config.element, config.element_b) || !(is_16_bits(config.element) || is_tn) ||
      (config.has_scales && !config.promotes) || config.stages < 2 ||
      config.tile_n % shape.parts != 0)
    return false;
  if (config.promotes && config.tile_m * config.tile_n > kMostPromoted) return false;
  const u32 base = config.base_columns(shape);
  const u32 rows = kBlockRows * (config.splits_columns(shape) ? 1 : kGroups);
  return base % larger(kSubTileColumns, shape.group_span) == 0 && config.tile_m % rows == 0 &&
         (shape.natural_half == 0 || base % shape.natural_half == 0) &&
         config.tile_n / shape.loaded_parts() % kOuterPanel == 0 && slots(config, shape) != 0 &&
         shape.bytes == 0 && !shape.keeps_tables;
}

constexpr u32 shared_bytes(const Config& config, const RingShape& shape) {
  return scratch_at(config) + kGroups * kScratchBuffers * scratch_bytes(shape);
}

}  // namespace coda::device::sm80
