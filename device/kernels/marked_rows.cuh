// SPDX-License-Identifier: Apache-2.0
// Lists the rows that a column of a mask marks, in ascending order. A block has one column and each
// thread a run of neighbouring rows: it counts its marks, then writes them after those of earlier
// threads. So the list does not depend on timing.
#pragma once

#include "device/element.cuh"
#include "device/ptx/lanes.cuh"

namespace coda::device {

inline constexpr u32 kMarkThreads = 256;

struct MarkCounts {
  u32 of_thread[kMarkThreads];
};

// mask [rows, blocks] with its stride in elements; list fp32 [places], padded with -1.
template <Element kIn>
__device__ __forceinline__ void marked_rows(MarkCounts& counts, u32 rows, u32 places, u64 mask,
                                            u32 stride, u64 list) {
  const u32 run = (rows + kMarkThreads - 1) / kMarkThreads;
  const u32 begin = thread_index() * run < rows ? thread_index() * run : rows;
  const u32 end = begin + run < rows ? begin + run : rows;
  const auto is_marked = [&](u32 row) {
    return load_element<kIn>(mask, static_cast<u64>(row) * stride + block_index()) != 0.0f;
  };
  u32 own = 0;
  for (u32 row = begin; row < end; ++row) own += is_marked(row) ? 1 : 0;
  counts.of_thread[thread_index()] = own;
  synchronize_block();
  u32 place = 0;
  u32 all = 0;
  for (u32 i = 0; i < kMarkThreads; ++i) {
    place += i < thread_index() ? counts.of_thread[i] : 0;
    all += counts.of_thread[i];
  }
  for (u32 row = begin; row < end && place < places; ++row) {
    if (is_marked(row)) store_element<Element::f32>(list, place++, static_cast<float>(row));
  }
  for (u32 i = all + thread_index(); i < places; i += kMarkThreads) {
    store_element<Element::f32>(list, i, -1.0f);
  }
}

}  // namespace coda::device
