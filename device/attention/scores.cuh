// SPDX-License-Identifier: Apache-2.0
// How the dot product of a query and a key becomes a score, for the tensor-core kernels. To
// modify scores in another way, change only this file.
#pragma once

#include "device/attention/fragments.cuh"
#include "device/attention/sizes.cuh"
#include "device/attention/tiles.cuh"
#include "device/element.cuh"
#include "device/values/math.cuh"

namespace coda::device::attention {

// Scores in the form in which the tensor-core kernels keep them: score = unit * value, where value
// is the dot product, or the hyperbolic tangent if there is a soft-cap. The unit is positive. Its
// multiplication is part of the exponential.
template <bool kCapped>
struct ScoreForm {
  float unit;
  float tangent = 0;  // what a dot product is multiplied by to be the exponent of 2 of its tangent

  __device__ __forceinline__ explicit ScoreForm(const AttentionSizes& sizes)
      : unit(kCapped ? sizes.soft_cap : sizes.scale) {
    if constexpr (kCapped) tangent = sizes.scale / sizes.soft_cap * (2.0f * kLog2E);
  }
  // The factor that makes a value an exponent of 2.
  __device__ __forceinline__ float exponent() const { return unit * kLog2E; }

  // tanh(x) = 1 - 2 / (1 + e^2x). Near 0 this has an absolute error of 1e-7, which is all that
  // matters for a score.
  __device__ __forceinline__ float value(float dot) const {
    if constexpr (!kCapped) return dot;
    return fmaf(-2.0f, reciprocal(1.0f + power_of_two(dot * tangent)), 1.0f);
  }
  // The derivative of a score with respect to the dot product, without AttentionSizes::scale; 0
  // where a query does not see a key.
  __device__ __forceinline__ static float slope(float value) {
    if constexpr (!kCapped) return 1.0f;
    const float tangent_value = fmaxf(value, -1.0f);
    return fmaf(-tangent_value, tangent_value, 1.0f);
  }
};

// The score of a head's sink; without sinks, nothing is read.
template <HeadShape kHead>
__device__ __forceinline__ float sink_of(const AttentionSizes& sizes, u32 head) {
  return kHead.sinks ? load_element<Element::f32>(sizes.sinks, head) : 0.0f;
}

// Replaces dot products by values, and by -infinity where a query does not see a key. `span_of`
// gives the tokens that a thread's row sees, or that see it; `first` is the token of the first
// column. Without `has_mask` the spans are not asked.
template <bool kCapped, u32 kRows, u32 kColumns, class SpanOf>
__device__ __forceinline__ void make_values(Accumulators<kRows, kColumns>& scores,
                                            const ScoreForm<kCapped>& form, bool has_mask,
                                            SpanOf span_of, u32 first) {
  if constexpr (kCapped) {
#pragma unroll
    for (u32 row = 0; row < kRows / 8; ++row) {
#pragma unroll
      for (u32 i = 0; i < kColumns / 4; ++i) scores.at(row, i) = form.value(scores.at(row, i));
    }
  }
  if (!has_mask) return;
#pragma unroll
  for (u32 row = 0; row < kRows / 8; ++row) {
    const TokenSpan span = span_of(row);
    // Relative to the thread's first column, so that each comparison is with a constant.
    const int own_first = static_cast<int>(first + column_of(0));
    const int begin = static_cast<int>(span.first) - own_first;
    const int end = static_cast<int>(span.last) - own_first;
#pragma unroll
    for (u32 i = 0; i < kColumns / 4; ++i) {
      const int column = static_cast<int>(i / 2 * 8 + i % 2);
      if (column < begin || column >= end) scores.at(row, i) = -kInfinity;
    }
  }
}

}  // namespace coda::device::attention
