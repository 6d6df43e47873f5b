// SPDX-License-Identifier: Apache-2.0
// The largest magnitude of a block's values, raised in memory. Magnitudes have the same order as
// their bits; NaN is above all numbers.
#pragma once

#include "device/ptx/global_memory.cuh"
#include "device/ptx/lanes.cuh"
#include "device/tiles/tile_position.cuh"
#include "device/values/elements.cuh"

namespace coda::device {

// Adds one row, of which `valid` columns exist, as a tree: three comparisons deep instead of eight.
template <bool kVector>
__device__ __forceinline__ void add_magnitudes(u32& largest, const Elements<kThreadColumns>& x,
                                               u32 valid) {
  if (valid == 0) return;
  u32 bits[kThreadColumns];
#pragma unroll
  for (u32 i = 0; i < kThreadColumns; ++i)
    bits[i] = kVector || i < valid ? float_word(x.value[i]) & 0x7fffffff : 0;
#pragma unroll
  for (u32 apart = kThreadColumns / 2; apart != 0; apart /= 2) {
#pragma unroll
    for (u32 i = 0; i < apart; ++i) bits[i] = larger(bits[i], bits[i + apart]);
  }
  largest = larger(largest, bits[0]);
}

// Called by all threads of a block. `scratch`: a float per warp for this call only.
__device__ __forceinline__ void raise_maximum(float* scratch, u64 scalar, u32 largest) {
  const u32 thread = thread_index();
  largest = largest_of_warp(largest);
  if (thread % 32 == 0) scratch[thread / 32] = word_value<Element::f32>(largest);
  synchronize_block();
  if (thread != 0) return;
#pragma unroll
  for (u32 warp = 1; warp < kTileWarps; ++warp)
    largest = larger(largest, float_word(scratch[warp]));
  raise_word(scalar, largest);
}

}  // namespace coda::device
