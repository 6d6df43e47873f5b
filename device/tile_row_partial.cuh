// SPDX-License-Identifier: Apache-2.0
// A row partial of 64 base columns: first a thread's eight columns from left to right (of pairs the
// first member before the second), then its eight lanes as a tree.
#pragma once

#include "device/reductions.cuh"
#include "device/vector_access.cuh"

namespace coda::device {

// In all lanes of a span.
__device__ __forceinline__ float span_sum(float x) {
#pragma unroll
  for (u32 mask = 1; mask < kSpanThreads; mask *= 2) x += exchange(x, mask);
  return x;
}
__device__ __forceinline__ float span_maximum(float x) {
#pragma unroll
  for (u32 mask = 1; mask < kSpanThreads; mask *= 2) x = maximum(x, exchange(x, mask));
  return x;
}

// `function(sum so far, x)` over the values that exist: with vectors all or none.
template <bool kVector, class Function, class... Members>
__device__ __forceinline__ float fold(float start, u32 valid, const Function& function,
                                      const Members&... members) {
  float result = start;
#pragma unroll
  for (u32 i = 0; i < kThreadColumns; ++i) {
    if (kVector || i < valid) ((result = function(result, members.value[i])), ...);
  }
  return kVector && valid == 0 ? start : result;
}

// `members`: a value of the base width, or both members of one of twice that. `row` is the thread's
// row, of `rows`; `valid` is 0 if it does not exist. `pitch`: elements between rows of the partial.
template <Reduction kKind, bool kVector, class... Members>
__device__ __forceinline__ void row_partial(u64 tensor, u32 pitch, u32 rows, u32 row, u32 columns,
                                            const TilePosition& at, u32 valid,
                                            const Members&... members) {
  const u32 span = at.column / kPartialSpan;
  const auto plus = [](float sum, float x) { return sum + x; };
  const auto most = [](float largest, float x) { return maximum(largest, x); };
  float lane[2] = {0.0f, 0.0f};
  if constexpr (kKind == Reduction::sum) {
    lane[0] = span_sum(fold<kVector>(0.0f, valid, plus, members...));
  } else if constexpr (kKind == Reduction::centred) {
    static_assert(sizeof...(members) == 1);
    const float total = span_sum(fold<kVector>(0.0f, valid, plus, members...));
    const u32 count = smaller(kPartialSpan, columns - span * kPartialSpan);
    const float mean = total / static_cast<float>(count);
    const auto square = [&](float sum, float x) { return sum + (x - mean) * (x - mean); };
    lane[0] = mean;
    lane[1] = span_sum(fold<kVector>(0.0f, valid, square, members...));
  } else {
    lane[0] = span_maximum(fold<kVector>(-kInfinity, valid, most, members...));
    if constexpr (kKind == Reduction::log_sum_exp) {
      const float largest = lane[0];
      const auto weigh = [&](float sum, float x) {
        return sum + (x == largest ? 1.0f : exponential(x - largest));
      };
      lane[1] = span_sum(fold<kVector>(0.0f, valid, weigh, members...));
    }
  }
  if (valid == 0 || thread_index() % kSpanThreads != 0) return;
#pragma unroll
  for (u32 i = 0; i < lanes_of(kKind); ++i) {
    const u64 line = static_cast<u64>(i) * rows + row;
    store_element<Stored::f32>(tensor, line * pitch + span, lane[i]);
  }
}

}  // namespace coda::device
