// SPDX-License-Identifier: Apache-2.0
// Marks the k largest elements of each row. A thread has one element and counts the elements of its
// row that come before it. This is correct for any width, but meant for the few columns of a
// router: the work grows with the square of the columns (all from L1).
#pragma once

#include "device/element.cuh"
#include "device/ptx/lanes.cuh"

namespace coda::device {

// Row strides are in elements. NaN is larger than any number; of equal elements the one with the
// lower index comes first.
template <Element kIn, Element kOut>
__device__ __forceinline__ void top_k_mask(u32 rows, u32 columns, u32 k, u64 x, u32 x_stride,
                                           u64 mask, u32 mask_stride) {
  const u64 element = static_cast<u64>(block_index()) * block_threads() + thread_index();
  const u32 row = static_cast<u32>(element / columns);
  const u32 own = static_cast<u32>(element % columns);
  if (row >= rows) return;
  const u64 start = static_cast<u64>(row) * x_stride;
  const float value = load_element<kIn>(x, start + own);
  const bool is_nan = value != value;
  u32 before = 0;
  for (u32 i = 0; i < columns; ++i) {
    const float other = load_element<kIn>(x, start + i);
    const bool other_is_nan = other != other;
    const bool is_equal = other == value || (is_nan && other_is_nan);
    const bool is_above = other > value || (other_is_nan && !is_nan);
    before += is_above || (is_equal && i < own) ? 1 : 0;
  }
  store_element<kOut>(mask, static_cast<u64>(row) * mask_stride + own, before < k ? 1.0f : 0.0f);
}

}  // namespace coda::device
