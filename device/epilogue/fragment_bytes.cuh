// SPDX-License-Identifier: Apache-2.0
// A fragment's values in 8 bits, stored along rows and along columns from the registers that hold
// them: what products of 8-bit operands read in both orders leaves the tile that makes it. A thread
// has eight bytes of a fragment, scattered over two rows and four columns. Threads exchange them
// until each has eight neighbours in memory: four threads of a quad, which hold the 16 columns of a
// row, in two exchanges; eight threads of neighbouring rows, which hold the same columns, in three.
// Shared memory is not needed, which the mainloop's stages fill.
// Invariant: every thread of a warp reaches each function, whatever of the tile exists.
#pragma once

#include "device/epilogue/sub_tile_rows.cuh"
#include "device/layout/space.cuh"
#include "device/ptx/global_memory.cuh"
#include "device/ptx/lanes.cuh"
#include "device/values/elements.cuh"

namespace coda::device {

// Of each of a thread's two rows (8 apart) four bytes: the left pair of columns, then the right
// one, 8 further.
template <Element kStored>
struct FragmentBytes {
  static_assert(bytes_of(kStored) == 1);
  u32 row[2];

  // Pairs come in their order, so that a row's left one is there when the right one comes.
  __device__ __forceinline__ void put(u32 pair, const Elements<2>& x) {
    const u32 two = two_eight_bits<kStored>(x.value[0], x.value[1]);
    row[pair % 2] = pair / 2 == 0 ? two : row[pair % 2] | two << 16;
  }
};

// What two threads, whose lanes differ by `mask`, make of two words each: the first of the two
// ends with the low halves of both threads' words, the other with the high halves, its own half of
// a word beside its partner's in the order of their lanes.
__device__ __forceinline__ void exchange_halves(u32& a, u32& b, u32 mask, bool is_first) {
  const u32 taken = exchange(__byte_perm(a, b, is_first ? 0x7632 : 0x5410), mask);
  a = __byte_perm(a, taken, is_first ? 0x5410 : 0x3254);
  b = __byte_perm(b, taken, is_first ? 0x7610 : 0x3276);
}

// The same with bytes of halves: even bytes for the first thread, odd ones for the other.
__device__ __forceinline__ void exchange_bytes(u32& a, u32& b, u32 mask, bool is_first) {
  const u32 taken = exchange(__byte_perm(a, b, is_first ? 0x7531 : 0x6420), mask);
  a = __byte_perm(a, taken, is_first ? 0x5240 : 0x3514);
  b = __byte_perm(b, taken, is_first ? 0x7260 : 0x3716);
}

// Of two words each, the first thread of two goes on with both threads' first ones, the other with
// both threads' second ones.
__device__ __forceinline__ void exchange_words(u32& a, u32& b, u32 mask, bool is_first) {
  const u32 taken = exchange(is_first ? b : a, mask);
  a = is_first ? a : taken;
  b = is_first ? taken : b;
}

// Eight neighbouring bytes of which the first `valid` are stored.
__device__ __forceinline__ void store_eight_bytes(u64 address, const u32 (&word)[2], u32 valid) {
  if (valid >= 8 && address % 8 == 0) {
    store_half_piece(address, word);
    return;
  }
#pragma unroll
  for (u32 i = 0; i < 8; ++i) {
    if (i < valid) {
      *reinterpret_cast<u8*>(address + i) = static_cast<u8>(word[i / 4] >> (8 * (i % 4)));
    }
  }
}
constexpr u32 left_of(u32 first, u32 end) { return first < end ? end - first : 0; }

// Along rows of a tensor that are `pitch` bytes apart. `at` is the fragment's position;
// `natural(j)` says where base column j stands in a row, eight from a multiple of eight on being
// neighbours.
template <Element kStored, class Natural>
__device__ __forceinline__ void store_byte_rows(u64 tensor, u32 pitch,
                                                const FragmentBytes<kStored>& x,
                                                const FragmentPosition& at,
                                                const Natural& natural) {
  const u32 lane = at.thread % 4;
  u32 word[2] = {x.row[0], x.row[1]};
  exchange_words(word[0], word[1], 2, lane < 2);
  exchange_halves(word[0], word[1], 1, lane % 2 == 0);
  const u32 row = at.row + lane / 2 * 8;
  const u32 column = at.column - 2 * lane + lane % 2 * 8;
  if (row >= at.rows) return;
  store_eight_bytes(tensor + static_cast<u64>(row) * pitch + natural(column), word,
                    left_of(column, at.columns));
}

// Along columns: base column j is row `natural(j)` of the tensor, whose rows are `pitch` bytes
// apart.
template <Element kStored, class Natural>
__device__ __forceinline__ void store_byte_columns(u64 tensor, u32 pitch,
                                                   const FragmentBytes<kStored>& x,
                                                   const FragmentPosition& at,
                                                   const Natural& natural) {
  const u32 group = at.thread % kWarpSize / 4;
  u32 word[2] = {x.row[0], x.row[1]};
  exchange_words(word[0], word[1], 16, group < 4);
  exchange_halves(word[0], word[1], 8, group % 4 < 2);
  exchange_bytes(word[0], word[1], 4, group % 2 == 0);
  const u32 column = at.column + group % 4 / 2 * 8 + group % 2;
  const u32 row = at.row - group + group / 4 * 8;
  if (column >= at.columns) return;
  store_eight_bytes(tensor + static_cast<u64>(natural(column)) * pitch + row, word,
                    left_of(row, at.rows));
}

// ---- The largest magnitude of a tile's values, raised in memory. Magnitudes are ordered as their
// bits are; what is no number lies above them all.

// One pair more of a row, of which the first `valid` exist.
__device__ __forceinline__ void add_pair_magnitudes(u32& largest, const Elements<2>& x, u32 valid) {
#pragma unroll
  for (u32 i = 0; i < 2; ++i)
    largest = larger(largest, valid > i ? float_word(x.value[i]) & 0x7fffffff : 0);
}

// Of a thread's two rows of a sub-tile at `at`. `known`: what memory has had; a warp that has
// nothing larger, as nearly all have, leaves it alone.
__device__ __forceinline__ void raise_magnitude(u64 scalar, const u32 (&largest)[2], u32 known,
                                                const FragmentPosition& at) {
  const u32 own = larger(at.row < at.rows ? largest[0] : 0, at.row + 8 < at.rows ? largest[1] : 0);
  const u32 all = largest_of_warp(own);
  if (at.thread % kWarpSize == 0 && all > known) raise_word(scalar, all);
}

}  // namespace coda::device
