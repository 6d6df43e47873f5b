// SPDX-License-Identifier: Apache-2.0
// Stores a fragment of 16 columns with 8-byte stores. In the mma layout, a quad (four threads)
// holds two rows of 16 columns. In each row, a thread holds two adjacent columns of the first eight
// and two adjacent columns of the last eight. A 4-byte store for each of these pairs would write
// half of a 32-byte sector. So each even thread exchanges one pair with the next thread: afterwards
// even threads hold four adjacent columns of the first eight, and odd threads four of the last
// eight.
#pragma once

#include "device/epilogue/direct_pairs.cuh"
#include "device/ptx/global_memory.cuh"
#include "device/ptx/lanes.cuh"

namespace coda::device {

// All threads of a warp must call it. The 16 columns of the fragment must be adjacent in the
// tensor. bits: the thread's values as packed pairs of 16-bit elements, in the order of the
// accumulators:
//       bits[half * 2 + side], half: first or last eight columns, side: first or second row
// stride: elements between rows of the tensor
// column: column of the tensor where the thread's first pair belongs
template <Element kStored>
__device__ __forceinline__ void store_fragment(u64 tensor, u32 stride, u32 column,
                                               const FragmentPosition& at,
                                               const u32 (&bits)[kPairs]) {
  const u32 lane = at.thread % 4;
  const u64 row = tensor + static_cast<u64>(at.row) * stride * kElementBytes;
  const u32 first = column - 2 * lane;
  if (is_whole(at) && (tensor + first * kElementBytes) % 8 == 0 && stride % 4 == 0) {
    const bool is_odd = lane % 2 != 0;
    const u64 own = row + (first + (is_odd ? 8 : 0) + lane / 2 * 4) * kElementBytes;
#pragma unroll
    for (u32 side = 0; side < 2; ++side) {
      const u32 got = exchange(is_odd ? bits[side] : bits[2 + side], 1);
      const u32 words[2] = {is_odd ? got : bits[side], is_odd ? bits[2 + side] : got};
      store_half_piece(own + static_cast<u64>(8 * side) * stride * kElementBytes, words);
    }
    return;
  }
#pragma unroll
  for (u32 pair = 0; pair < kPairs; ++pair) {
    const u32 side = pair % 2;
    const u32 half = pair / 2 * 8;
    const u32 inside = at.row + 8 * side < at.rows ? inside_pair(at.column + half, at.columns) : 0;
    store_pair<kStored>(row + static_cast<u64>(8 * side) * stride * kElementBytes, column + half,
                        inside, unpack<kStored>(bits[pair]));
  }
}

}  // namespace coda::device
