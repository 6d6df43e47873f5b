// SPDX-License-Identifier: Apache-2.0
// A row partial of 64 base columns: first the eight columns of each thread from left to right (for
// pairs, the first member before the second), then its eight lanes as a tree.
#pragma once

#include "device/tiles/vector_access.cuh"
#include "device/values/reductions.cuh"

namespace coda::device {

// The fold over all lanes of a span.
template <Reduction kKind>
__device__ __forceinline__ float span_fold(float x) {
#pragma unroll
  for (u32 mask = 1; mask < kSpanThreads; mask *= 2) x = fold<kKind>(x, exchange(x, mask));
  return x;
}

// Folds `function(sum so far, x)` over the values that exist; with vectors that is all or none.
template <bool kVector, class Sum, class Function, class... Members>
__device__ __forceinline__ Sum fold_values(Sum start, u32 valid, const Function& function,
                                           const Members&... members) {
  Sum result = start;
#pragma unroll
  for (u32 i = 0; i < kThreadColumns; ++i) {
    if (kVector || i < valid) ((result = function(result, members.value[i])), ...);
  }
  return kVector && valid == 0 ? start : result;
}

// The fields of a partial in memory.
template <Reduction kKind>
struct RowPartial {
  float lane[lanes_of(kKind)];
};

// The partial of one row, in all lanes of a span. `members`: a value of base width, or both members
// of a wide value. `valid` is 0 if the row does not exist.
template <Reduction kKind, bool kVector, class... Members>
__device__ __forceinline__ RowPartial<kKind> row_partial(u32 columns, const TilePosition& at,
                                                         u32 valid, const Members&... members) {
  const auto plus = [](float sum, float x) { return sum + x; };
  const auto most = [](float largest, float x) { return maximum(largest, x); };
  RowPartial<kKind> result;
  if constexpr (lanes_of(kKind) == 1) {
    const auto next = [](float a, float x) { return fold<kKind>(a, of_one<kKind>(x)); };
    result.lane[0] =
        span_fold<kKind>(fold_values<kVector>(start_of(kKind), valid, next, members...));
  } else if constexpr (kKind == Reduction::mean_m2) {
    static_assert(sizeof...(members) == 1);
    const float total =
        span_fold<Reduction::sum>(fold_values<kVector>(0.0f, valid, plus, members...));
    const u32 span = at.column / kPartialSpan;
    const u32 count = smaller(kPartialSpan, columns - span * kPartialSpan);
    const float mean = total / static_cast<float>(count);
    const auto square = [&](float sum, float x) { return sum + (x - mean) * (x - mean); };
    result.lane[0] = mean;
    result.lane[1] =
        span_fold<Reduction::sum>(fold_values<kVector>(0.0f, valid, square, members...));
  } else if constexpr (kKind == Reduction::entropy) {
    const float largest =
        span_fold<Reduction::max>(fold_values<kVector>(-kInfinity, valid, most, members...));
    EntropySums sums =
        fold_values<kVector>(EntropySums(), valid, EntropyBelow(largest), members...);
    sums.sum = span_fold<Reduction::sum>(sums.sum);
    sums.shifted = span_fold<Reduction::sum>(sums.shifted);
    sums = totals_below(largest, sums);
    result.lane[0] = largest;
    result.lane[1] = sums.sum;
    result.lane[2] = sums.shifted;
  } else {
    const float largest =
        span_fold<Reduction::max>(fold_values<kVector>(-kInfinity, valid, most, members...));
    const float sum =
        span_fold<Reduction::sum>(fold_values<kVector>(0.0f, valid, SumBelow(largest), members...));
    result.lane[0] = largest;
    result.lane[1] = total_below(largest, sum);
  }
  return result;
}

// Stores the partials of rows `row`, row + 1, ..., below `rows`; each is written by its own lane.
// `pitch`: elements between rows of the partial.
template <Reduction kKind, u32 kRows>
__device__ __forceinline__ void store_row_partials(u64 tensor, u32 pitch, u32 rows, u32 row,
                                                   u32 columns, const TilePosition& at,
                                                   const RowPartial<kKind> (&partials)[kRows]) {
  static_assert(kRows <= kSpanThreads);
  const u32 span = at.column / kPartialSpan;
  const u32 own = thread_index() % kSpanThreads;
  RowPartial<kKind> chosen = partials[0];
#pragma unroll
  for (u32 r = 1; r < kRows; ++r) {
#pragma unroll
    for (u32 i = 0; i < lanes_of(kKind); ++i) {
      chosen.lane[i] = own == r ? partials[r].lane[i] : chosen.lane[i];
    }
  }
  if (own >= kRows || row + own >= rows || span * kPartialSpan >= columns) return;
#pragma unroll
  for (u32 i = 0; i < lanes_of(kKind); ++i) {
    const u64 line = static_cast<u64>(i) * rows + row + own;
    store_element<Element::f32>(tensor, line * pitch + span, chosen.lane[i]);
  }
}

}  // namespace coda::device
