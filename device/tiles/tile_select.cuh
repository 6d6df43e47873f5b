// SPDX-License-Identifier: Apache-2.0
// Stores the value of a row at a given column index: the thread that holds it stores it; if there
// is no such column, the thread with column 0 stores 0.
#pragma once

#include "device/tiles/vector_access.cuh"

namespace coda::device {

// `place` is the row's element in the tensor; `columns` is the number of columns of the whole
// value.
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
