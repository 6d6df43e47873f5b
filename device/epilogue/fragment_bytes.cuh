// SPDX-License-Identifier: Apache-2.0
// Writes a fragment's values as 8-bit floats to a byte plane (along rows, along columns, or both),
// and reads them from a plane along rows. GEMMs with 8-bit operands read values in both orders. TMA
// then writes the planes in whole memory sectors. (Direct stores of 16 bytes by threads took four
// times as long, because a partly written sector must be read first.)
// A thread has eight bytes of a fragment, in two rows and four columns. Threads exchange bytes
// until each has eight neighbours: within a quad, which holds the 16 columns of a row, in two
// exchanges; among eight neighbouring rows, which hold the same columns, in three.
// Invariant: all threads of a warp call each function, even outside the tensor.
#pragma once

#include "device/layout/fragment.cuh"
#include "device/ptx/global_memory.cuh"
#include "device/ptx/lanes.cuh"
#include "device/ptx/memory_moves.cuh"
#include "device/values/elements.cuh"

namespace coda::device {

// A thread's eight bytes as two words, one for each row (8 apart): the left pair of columns, then
// the right pair, 8 columns further. Pairs must be added in order.
template <Element kStored>
__device__ __forceinline__ void put_bytes(u32 (&words)[4], u32 pair, const Elements<2>& x) {
  static_assert(bytes_of(kStored) == 1);
  const u32 two = two_eight_bits<kStored>(x.value[0], x.value[1]);
  words[pair % 2] = pair / 2 == 0 ? two : words[pair % 2] | two << 16;
}

// Two threads, whose lanes differ by `mask`, have two words each. The first thread ends with both
// first words, the other with both second words.
__device__ __forceinline__ void exchange_words(u32& a, u32& b, u32 mask, bool is_first) {
  const u32 taken = exchange(is_first ? b : a, mask);
  a = is_first ? a : taken;
  b = is_first ? taken : b;
}

// The same within each word: the first thread gets the low halves, the other the high halves.
__device__ __forceinline__ void exchange_halves(u32& a, u32& b, u32 mask, bool is_first) {
  const u32 taken = exchange(__byte_perm(a, b, is_first ? 0x7632 : 0x5410), mask);
  a = __byte_perm(a, taken, is_first ? 0x5410 : 0x3254);
  b = __byte_perm(b, taken, is_first ? 0x7610 : 0x3276);
}

// The same within each half: the first thread gets the even bytes, the other the odd bytes.
__device__ __forceinline__ void exchange_bytes(u32& a, u32& b, u32 mask, bool is_first) {
  const u32 taken = exchange(__byte_perm(a, b, is_first ? 0x7531 : 0x6420), mask);
  a = __byte_perm(a, taken, is_first ? 0x5240 : 0x3514);
  b = __byte_perm(b, taken, is_first ? 0x7260 : 0x3716);
}

// Writes eight neighbouring columns of a row to half a plane.
__device__ __forceinline__ void stage_byte_rows(SharedAddress half, const u32 (&bytes)[4],
                                                u32 thread, u32 fragment) {
  const u32 lane = thread % 4;
  u32 word[2] = {bytes[0], bytes[1]};
  exchange_words(word[0], word[1], 2, lane < 2);
  exchange_halves(word[0], word[1], 1, lane % 2 == 0);
  store_shared(half + byte_row_offset(thread, fragment), word);
}

// The inverse: reads a thread's words in the order of put_bytes.
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

// Writes eight neighbouring rows of a column to half a plane.
__device__ __forceinline__ void stage_byte_columns(SharedAddress half, const u32 (&bytes)[4],
                                                   u32 thread, u32 fragment) {
  const u32 group = thread % kWarpSize / 4;
  u32 word[2] = {bytes[0], bytes[1]};
  exchange_words(word[0], word[1], 16, group < 4);
  exchange_halves(word[0], word[1], 8, group % 4 < 2);
  exchange_bytes(word[0], word[1], 4, group % 2 == 0);
  store_shared(half + byte_column_offset(thread, fragment), word);
}

// ---- The largest magnitude of a tile, raised in memory. Magnitudes have the same order as their
// bits; NaN is above all numbers.

// Adds a pair of a row, whose first `valid` elements exist.
__device__ __forceinline__ void add_pair_magnitudes(float& largest, const Elements<2>& x,
                                                    u32 valid) {
#pragma unroll
  for (u32 i = 0; i < 2; ++i) largest = valid > i ? maximum(largest, fabsf(x.value[i])) : largest;
}

// For a thread's two rows of the sub-tile at `at`. `known`: an earlier value in memory. A warp
// without a larger value, which is the usual case, does not access memory.
__device__ __forceinline__ void raise_magnitude(u64 scalar, const float (&largest)[2], u32 known,
                                                const FragmentPosition& at) {
  const u32 own = larger(at.row < at.rows ? float_word(largest[0]) : 0,
                         at.row + 8 < at.rows ? float_word(largest[1]) : 0);
  const u32 all = largest_of_warp(own & 0x7fffffff);
  if (at.thread % kWarpSize == 0 && all > known) raise_word(scalar, all);
}

}  // namespace coda::device
