// SPDX-License-Identifier: Apache-2.0
// Sums and largest magnitudes of groups of columns (heads) that a warp holds whole, in every
// element of the group: a value with one column a group is kept as one of the base width whose
// columns repeat.
#pragma once

#include "device/ptx/lanes.cuh"
#include "device/tiles/vector_access.cuh"
#include "device/values/reductions.cuh"

namespace coda::device {

// A group has kGroup base columns, a power of two up to 256; `members` as for a row partial. Both
// kinds begin at 0.
template <Reduction kKind, u32 kGroup, class... Members>
__device__ __forceinline__ Elements<kThreadColumns> group_fold(const Members&... members) {
  static_assert(kGroup >= 1 && kGroup <= kBlockColumns && (kGroup & (kGroup - 1)) == 0);
  static_assert(kKind == Reduction::sum || kKind == Reduction::abs_max);
  constexpr u32 kOwn = smaller(kGroup, kThreadColumns);
  Elements<kThreadColumns> result;
#pragma unroll
  for (u32 first = 0; first < kThreadColumns; first += kOwn) {
    float all = 0.0f;
#pragma unroll
    for (u32 i = first; i < first + kOwn; ++i)
      ((all = fold<kKind>(all, of_one<kKind>(members.value[i]))), ...);
#pragma unroll
    for (u32 mask = 1; mask < kGroup / kOwn; mask *= 2) all = fold<kKind>(all, exchange(all, mask));
#pragma unroll
    for (u32 i = first; i < first + kOwn; ++i) result.value[i] = all;
  }
  return result;
}
template <u32 kGroup, class... Members>
__device__ __forceinline__ Elements<kThreadColumns> group_sum(const Members&... members) {
  return group_fold<Reduction::sum, kGroup>(members...);
}
template <u32 kGroup, class... Members>
__device__ __forceinline__ Elements<kThreadColumns> group_abs_max(const Members&... members) {
  return group_fold<Reduction::abs_max, kGroup>(members...);
}

// One row more of a thread's columns, of which `valid` exist: their largest magnitudes.
__device__ __forceinline__ void raise_columns(Elements<kThreadColumns>& largest,
                                              const Elements<kThreadColumns>& x, u32 valid) {
#pragma unroll
  for (u32 i = 0; i < kThreadColumns; ++i) {
    const float larger = fold<Reduction::abs_max>(largest.value[i], fabsf(x.value[i]));
    largest.value[i] = i < valid ? larger : largest.value[i];
  }
}
// Of groups of kGroup base columns and the 64 rows of a block, from a thread's columns (which begin
// at 0); all threads of a block. `scratch`: a float a thread.
template <u32 kGroup, class... Members>
__device__ __forceinline__ Elements<kThreadColumns> block_abs_max(float* scratch,
                                                                  const Members&... members) {
  static_assert(kGroup % kThreadColumns == 0, "a thread's columns are of one group");
  const u32 thread = thread_index();
  scratch[thread] = group_abs_max<kGroup>(members...).value[0];
  synchronize_block();
  float all = scratch[thread % 32];
#pragma unroll
  for (u32 warp = 1; warp < kTileWarps; ++warp)
    all = fold<Reduction::abs_max>(all, scratch[warp * 32 + thread % 32]);
  synchronize_block();  // what comes next writes the same memory
  Elements<kThreadColumns> result;
#pragma unroll
  for (float& x : result.value) x = all;
  return result;
}

// Stores the columns that are the first of their group; column(i) is base or natural column i.
template <Element kStored, class Column>
__device__ __forceinline__ void store_groups(u64 tensor, u64 row, u32 valid, u32 group,
                                             const Column& column,
                                             const Elements<kThreadColumns>& x) {
#pragma unroll
  for (u32 i = 0; i < kThreadColumns; ++i) {
    if (i < valid && column(i) % group == 0) {
      store_element<kStored>(tensor, row + column(i) / group, x.value[i]);
    }
  }
}

}  // namespace coda::device
