// SPDX-License-Identifier: Apache-2.0
// Where things lie: wgmma's accumulator fragment, the 128-byte swizzle that TMA and wgmma share
// (planes of 32 columns have the 64-byte one), and the addresses that a warp gives to ldmatrix and
// stmatrix. Pure arithmetic, tested on the host for every thread and register.
// Invariant: for each 16x16 fragment the four 8x8 matrices that stmatrix writes hold exactly the
// accumulators of that fragment, so that planes are read and written without an exchange of values
// between threads.
#pragma once

#include "device/layout/space.cuh"

namespace coda::device {

// Byte offset inside a tile of 128-byte rows -> where the swizzle puts it. The tile starts at a
// multiple of 1024 bytes.
constexpr u32 swizzle_128b(u32 offset) { return offset ^ ((offset >> 3) & 0x70); }
// The same of 64-byte rows: the tile starts at a multiple of 512 bytes.
constexpr u32 swizzle_64b(u32 offset) { return offset ^ ((offset >> 3) & 0x30); }

// Row and column, inside the 64-row block of one warpgroup, of a thread's accumulator register.
constexpr u32 fragment_row(u32 thread, u32 index) {
  return (thread / kWarpSize) * 16 + (thread % kWarpSize) / 4 + ((index / 2) % 2) * 8;
}
constexpr u32 fragment_column(u32 thread, u32 index) {
  return (index / 4) * 8 + (thread % 4) * 2 + index % 2;
}

// The first of four neighbouring columns of a fragment that a thread has once it has exchanged two
// values of each row with the thread beside it: even threads keep the left half's, odd ones the
// right half's.
constexpr u32 column_of_four(u32 thread) { return thread % 2 * 8 + thread / 2 % 2 * 4; }

// Lane l addresses row l % 8 of matrix l / 8, whose order (rows 0-7 and 8-15 of the left half, then
// of the right half) is that of the accumulators. Returns a byte offset inside a plane of the
// sub-tile, which has `width` columns.
constexpr u32 fragment_offset(u32 thread, u32 fragment, u32 width) {
  const u32 lane = thread % kWarpSize;
  const u32 row = (thread / kWarpSize) * 16 + lane % 16;
  const u32 column_byte = fragment * (kFragmentColumns * kElementBytes) + (lane / 16) * 16;
  const u32 offset = row * width * kElementBytes + column_byte;
  return width == kSubTileColumns ? swizzle_128b(offset) : swizzle_64b(offset);
}

// Where a thread's eight bytes of a fragment begin in half a plane, once threads have exchanged
// them. Along rows it has 64 rows of 64 columns: a lane of a quad has the left or right eight of
// one of the thread's rows. Along columns it has 64 columns of 64 rows: of the eight threads with
// the same columns each has the upper or lower eight rows of one of these.
constexpr u32 byte_row_offset(u32 thread, u32 fragment) {
  const u32 row = fragment_row(thread, 0) + thread % 4 / 2 * 8;
  return swizzle_64b(row * kSubTileColumns + fragment * kFragmentColumns + thread % 2 * 8);
}
constexpr u32 byte_column_offset(u32 thread, u32 fragment) {
  const u32 group = thread % kWarpSize / 4;
  const u32 column =
      fragment * kFragmentColumns + fragment_column(thread, 0) + group % 4 / 2 * 8 + group % 2;
  const u32 row = thread / kWarpSize * 16 + group / 4 * 8;
  return swizzle_64b(column * kWgmmaM + row);
}

// Exclusive-ored with the offset of fragment 0 it gives that of `fragment`, also when the start of
// a plane (a multiple of 1024) has been added: one register instead of four.
constexpr u32 fragment_step(u32 fragment) { return fragment * (kFragmentColumns * kElementBytes); }

// Sub-tiles of one tile, in the order in which the epilogue visits them. Cooperative warpgroups
// alternate, so that both advance through one ring of staging buffers.
constexpr u32 sub_tile_columns(const GemmConfig& config, const EpilogueTraits& shape) {
  return base_columns(config, shape) / sub_tile_width(config, shape);
}
constexpr u32 sub_tiles(const GemmConfig& config, const EpilogueTraits& shape) {
  return config.tile_m / kWgmmaM * sub_tile_columns(config, shape);
}
constexpr u32 sub_tiles_per_warpgroup(const GemmConfig& config, const EpilogueTraits& shape) {
  return config.blocks_m() * sub_tile_columns(config, shape);
}

struct SubTilePlace {
  u32 warpgroup = 0;  // which consumer warpgroup holds it, among those that share the tile
  u32 block_m = 0;    // 64-row block of that warpgroup
  u32 column = 0;     // first base column in the tile
};

constexpr SubTilePlace sub_tile(const GemmConfig& config, const EpilogueTraits& shape, u32 index) {
  const u32 sharers = config.schedule == Schedule::cooperative ? kConsumerWarpgroups : 1;
  const u32 own = index / sharers;
  const u32 columns = sub_tile_columns(config, shape);
  return {.warpgroup = index % sharers,
          .block_m = own / columns,
          .column = own % columns * sub_tile_width(config, shape)};
}

constexpr TileCoord sub_tile_origin(const GemmConfig& config, const EpilogueTraits& shape,
                                    TileCoord tile, u32 index) {
  const SubTilePlace sub = sub_tile(config, shape, index);
  return {.m = tile.m + sub.warpgroup * config.warpgroup_m() + sub.block_m * kWgmmaM,
          .n = tile.n + sub.column};
}

}  // namespace coda::device
