// SPDX-License-Identifier: Apache-2.0
// Stores the 16 columns of a fragment that the four threads of a quad hold in two rows. A thread
// holds a pair of columns in each half of the fragment. Stored pair by pair, a row's 32 bytes take
// two instructions, each of which touches half of a memory sector in 16 rows. So neighbours
// exchange a pair: even threads get four columns of the first half, odd ones of the second.
#pragma once

#include "device/epilogue/direct_pairs.cuh"
#include "device/ptx/global_memory.cuh"
#include "device/ptx/lanes.cuh"

namespace coda::device {

// `bits`: packed pairs of 16-bit elements, as in a fragment of the accumulators. `stride`: elements
// between rows. `column`: the tensor's column of the thread's first pair. The fragment's columns
// are adjacent in the tensor. Called by all threads of a warp.
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
