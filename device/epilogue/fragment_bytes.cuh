// SPDX-License-Identifier: Apache-2.0
// A fragment's values in 8 bits, written to a byte plane along rows and along columns, or read from
// one along rows: what products of 8-bit operands read in both orders leaves the tile that makes
// it, by the copy engine, in whole sectors of memory. (Threads that stored 16 bytes here and there
// themselves took four times as long: memory is read where a sector is written in part.) A thread
// has eight bytes of a fragment, scattered over two rows and four columns. Threads exchange them
// until each has eight neighbours: the four of a quad, which hold the 16 columns of a row, in two
// exchanges; the eight of neighbouring rows, which hold the same columns, in three. Invariant:
// every thread of a warp reaches each function, whatever of the tile exists.
#pragma once

#include "device/layout/fragment.cuh"
#include "device/ptx/global_memory.cuh"
#include "device/ptx/lanes.cuh"
#include "device/ptx/memory_moves.cuh"
#include "device/values/elements.cuh"

namespace coda::device {

// A thread's eight bytes as two words, one for each of its rows (8 apart): the left pair of
// columns, then the right one, 8 further. Pairs come in their order.
template <Element kStored>
__device__ __forceinline__ void put_bytes(u32 (&words)[4], u32 pair, const Elements<2>& x) {
  static_assert(bytes_of(kStored) == 1);
  const u32 two = two_eight_bits<kStored>(x.value[0], x.value[1]);
  words[pair % 2] = pair / 2 == 0 ? two : words[pair % 2] | two << 16;
}

// Two threads, whose lanes differ by `mask`, have two words each. The first of them goes on with
// both threads' first words, the other with both threads' second ones.
__device__ __forceinline__ void exchange_words(u32& a, u32& b, u32 mask, bool is_first) {
  const u32 taken = exchange(is_first ? b : a, mask);
  a = is_first ? a : taken;
  b = is_first ? taken : b;
}

// The same within each word: low halves for the first thread, high ones for the other.
__device__ __forceinline__ void exchange_halves(u32& a, u32& b, u32 mask, bool is_first) {
  const u32 taken = exchange(__byte_perm(a, b, is_first ? 0x7632 : 0x5410), mask);
  a = __byte_perm(a, taken, is_first ? 0x5410 : 0x3254);
  b = __byte_perm(b, taken, is_first ? 0x7610 : 0x3276);
}

// The same within each half: even bytes for the first thread, odd ones for the other.
__device__ __forceinline__ void exchange_bytes(u32& a, u32& b, u32 mask, bool is_first) {
  const u32 taken = exchange(__byte_perm(a, b, is_first ? 0x7531 : 0x6420), mask);
  a = __byte_perm(a, taken, is_first ? 0x5240 : 0x3514);
  b = __byte_perm(b, taken, is_first ? 0x7260 : 0x3716);
}

// Eight neighbouring columns of a row, in a half of a plane.
__device__ __forceinline__ void stage_byte_rows(SharedAddress half, const u32 (&bytes)[4],
                                                u32 thread, u32 fragment) {
  const u32 lane = thread % 4;
  u32 word[2] = {bytes[0], bytes[1]};
  exchange_words(word[0], word[1], 2, lane < 2);
  exchange_halves(word[0], word[1], 1, lane % 2 == 0);
  store_shared(half + byte_row_offset(thread, fragment), word);
}

// And back: a thread's words as put_bytes has them.
__device__ __forceinline__ void load_byte_rows(u32 (&bytes)[4], SharedAddress half, u32 thread,
                                               u32 fragment) {
  const u32 lane = thread % 4;
  u32 word[2];
  load_shared(word, half + byte_row_offset(thread, fragment));
  exchange_halves(word[0], word[1], 1, lane % 2 == 0);
  exchange_words(word[0], word[1], 2, lane < 2);
  bytes[0] = word[0];
  bytes[1] = word[1];
}
template <Element kStored>
__device__ __forceinline__ Elements<2> pair_of_bytes(const u32 (&bytes)[4], u32 pair) {
  static_assert(bytes_of(kStored) == 1);
  Elements<2> x;
  from_two_eight_bits<kStored>(static_cast<u16>(bytes[pair % 2] >> 16 * (pair / 2)), x.value[0],
                               x.value[1]);
  return x;
}

// Eight neighbouring rows of a column, in another.
__device__ __forceinline__ void stage_byte_columns(SharedAddress half, const u32 (&bytes)[4],
                                                   u32 thread, u32 fragment) {
  const u32 group = thread % kWarpSize / 4;
  u32 word[2] = {bytes[0], bytes[1]};
  exchange_words(word[0], word[1], 16, group < 4);
  exchange_halves(word[0], word[1], 8, group % 4 < 2);
  exchange_bytes(word[0], word[1], 4, group % 2 == 0);
  store_shared(half + byte_column_offset(thread, fragment), word);
}

// ---- The largest magnitude of a tile's values, raised in memory. Magnitudes are ordered as their
// bits are; what is no number lies above them all.

// One pair more of a row, of which the first `valid` exist.
__device__ __forceinline__ void add_pair_magnitudes(float& largest, const Elements<2>& x,
                                                    u32 valid) {
#pragma unroll
  for (u32 i = 0; i < 2; ++i) largest = valid > i ? maximum(largest, fabsf(x.value[i])) : largest;
}

// Of a thread's two rows of a sub-tile at `at`. `known`: what memory has had; a warp that has
// nothing larger, as nearly all have, leaves it alone.
__device__ __forceinline__ void raise_magnitude(u64 scalar, const float (&largest)[2], u32 known,
                                                const FragmentPosition& at) {
  const u32 own = larger(at.row < at.rows ? float_word(largest[0]) : 0,
                         at.row + 8 < at.rows ? float_word(largest[1]) : 0);
  const u32 all = largest_of_warp(own & 0x7fffffff);
  if (at.thread % kWarpSize == 0 && all > known) raise_word(scalar, all);
}

}  // namespace coda::device
