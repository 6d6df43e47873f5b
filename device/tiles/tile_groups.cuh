// SPDX-License-Identifier: Apache-2.0
// Sums and largest magnitudes of column groups (heads) that fit into a warp. Every element of a
// group gets the result: a value with one column per group is stored as one of base width with
// repeated columns.
#pragma once

#include "device/ptx/lanes.cuh"
#include "device/tiles/vector_access.cuh"
#include "device/values/reductions.cuh"

namespace coda::device {

// A group has kGroup base columns, a power of two up to 256; `members` as for a row partial. Both
// kinds start at 0.
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

// Stores the first column of each group; column(i) is base or natural column i.
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
