// SPDX-License-Identifier: Apache-2.0
// Index maps: wgmma's accumulator fragment, the 128-byte swizzle of TMA and wgmma (64-byte for
// planes of 32 columns), and the addresses for ldmatrix and stmatrix. Pure arithmetic, tested on
// the host for every thread and register.
// Invariant: for each 16x16 fragment, the four 8x8 matrices of stmatrix hold exactly the
// accumulators of that fragment, so that planes are read and written without exchanging values
// between threads.
#pragma once

#include "device/layout/space.cuh"

namespace coda::device {

// The swizzled position of a byte offset in a tile of 128-byte rows. The tile must start at a
// multiple of 1024 bytes.
constexpr u32 swizzle_128b(u32 offset) { return offset ^ ((offset >> 3) & 0x70); }
// The same for 64-byte rows: the tile must start at a multiple of 512 bytes.
constexpr u32 swizzle_64b(u32 offset) { return offset ^ ((offset >> 3) & 0x30); }

// Row and column of a thread's accumulator register in the 64-row block of its warpgroup.
constexpr u32 fragment_row(u32 thread, u32 index) {
  return (thread / kWarpSize) * 16 + (thread % kWarpSize) / 4 + ((index / 2) % 2) * 8;
}
constexpr u32 fragment_column(u32 thread, u32 index) {
  return (index / 4) * 8 + (thread % 4) * 2 + index % 2;
}

// The first of four neighbouring columns of a fragment that a thread has after exchanging two
// values of each row with its neighbour: even threads have the left half, odd ones the right half.
constexpr u32 column_of_four(u32 thread) { return thread % 2 * 8 + thread / 2 % 2 * 4; }

// The byte offset, in a plane of a sub-tile with `width` columns, that a lane passes to ldmatrix
// and stmatrix. Lane l addresses row l % 8 of matrix l / 8; matrices are in the order of the
// accumulators (rows 0-7 and 8-15 of the left half, then of the right half).
constexpr u32 fragment_offset(u32 thread, u32 fragment, u32 width) {
  const u32 lane = thread % kWarpSize;
  const u32 row = (thread / kWarpSize) * 16 + lane % 16;
  const u32 column_byte = fragment * (kFragmentColumns * kElementBytes) + (lane / 16) * 16;
  const u32 offset = row * width * kElementBytes + column_byte;
  return width == kSubTileColumns ? swizzle_128b(offset) : swizzle_64b(offset);
}

// The offset, in half a plane, of a thread's eight bytes of a fragment after the exchange. Along
// rows, the half has 64 rows of 64 columns: a lane of a quad has the left or right eight columns of
// one of the thread's rows. Along columns, it has 64 columns of 64 rows: each of the eight threads
// with the same columns has the upper or lower eight rows of one column.
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

// XOR with the offset of fragment 0 gives the offset of `fragment`, also after the start of a plane
// (a multiple of 1024) is added. This takes one register instead of four.
constexpr u32 fragment_step(u32 fragment) { return fragment * (kFragmentColumns * kElementBytes); }

// The sub-tiles of a tile in the order of the epilogue. Cooperative warpgroups alternate, so that
// both advance through one ring of staging buffers.
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
  u32 warpgroup = 0;  // the consumer warpgroup that holds it, among those that share the tile
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
