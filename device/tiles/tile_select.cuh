// SPDX-License-Identifier: Apache-2.0
// The one value of a row that an index names: stored by the thread that holds it, and 0 by the
// thread of column 0 where no column has that index.
#pragma once

#include "device/tiles/vector_access.cuh"

namespace coda::device {

// `place` is the row's element of the tensor; `columns` those of the value x is a plane of.
template <Element kStored, bool kVector, class Column>
__device__ __forceinline__ void store_selected(u64 tensor, u64 place, u32 valid, u32 index,
                                               u32 columns, const Column& column,
                                               const Elements<kThreadColumns>& x) {
  if (valid == 0) return;
  const u32 first = column(0);
  if (index >= columns && first == 0) store_element<kStored>(tensor, place, 0.0f);
  if constexpr (kVector) {
    if (index - first >= kThreadColumns || index >= columns) return;
    float picked = 0.0f;
#pragma unroll
    for (u32 i = 0; i < kThreadColumns; ++i) picked = index - first == i ? x.value[i] : picked;
    store_element<kStored>(tensor, place, picked);
  } else {
#pragma unroll
    for (u32 i = 0; i < kThreadColumns; ++i) {
      if (i < valid && column(i) == index) store_element<kStored>(tensor, place, x.value[i]);
    }
  }
}

}  // namespace coda::device
