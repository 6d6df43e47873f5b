// SPDX-License-Identifier: Apache-2.0
// The softmax of rows of scores that arrive block by block, for all forward kernels on tensor
// cores.
// Invariant: numerator and denominator of a row always have the same factor, so a row's maximum is
// only as exact as overflow demands.
#pragma once

#include "device/attention/fragments.cuh"
#include "device/values/math.cuh"

namespace coda::device::attention {

// A row's largest score is replaced only by one that is larger by this much, as an exponent of 2.
// Probabilities stay below 2^8, and the sums are rarely rescaled.
inline constexpr float kLargestRise = 8.0f;

// The factors that a thread's rows of the output must be multiplied by before the next block's
// product is added. `any` is equal in all lanes.
template <u32 kOwnRows>
struct Rescale {
  bool any;
  float factor[kOwnRows];

  template <u32 kRows, u32 kWidth>
  __device__ __forceinline__ void apply(Accumulators<kRows, kWidth>& output) const {
    if (!any) return;
#pragma unroll
    for (u32 row = 0; row < kOwnRows; ++row) {
#pragma unroll
      for (u32 i = 0; i < kWidth / 4; ++i) output.at(row, i) *= factor[row];
    }
  }
};

// The softmax of a thread's rows over the blocks of keys so far.
template <u32 kOwnRows>
struct OnlineSoftmax {
  float exponent;         // makes a value (ScoreForm) an exponent of 2
  float top[kOwnRows];    // the value that probabilities are relative to
  float total[kOwnRows];  // of probabilities, of this thread's columns

  __device__ __forceinline__ explicit OnlineSoftmax(float exponent_of_value)
      : exponent(exponent_of_value) {
#pragma unroll
    for (u32 row = 0; row < kOwnRows; ++row) {
      top[row] = -kInfinity;
      total[row] = 0;
    }
  }

  // Takes the maximum of a block of values into account.
  template <u32 kRows, u32 kColumns>
  __device__ __forceinline__ Rescale<kOwnRows> raise(const Accumulators<kRows, kColumns>& values) {
    float largest[kOwnRows];
    bool any_rises = false;
#pragma unroll
    for (u32 row = 0; row < kOwnRows; ++row) {
      largest[row] = top[row];
#pragma unroll
      for (u32 i = 0; i < kColumns / 4; i += 2)  // pairs shorten the chain of dependent maxima
        largest[row] = fmaxf(largest[row], fmaxf(values.at(row, i), values.at(row, i + 1)));
      largest[row] = largest_of_quad(largest[row]);
      any_rises = any_rises || (largest[row] - top[row]) * exponent > kLargestRise;
    }
    Rescale<kOwnRows> rescale;
    rescale.any = lanes_that(any_rises) != 0;
    if (!rescale.any) return rescale;
#pragma unroll
    for (u32 row = 0; row < kOwnRows; ++row) {
      const float rise = (largest[row] - top[row]) * exponent;
      const bool rises = rise > kLargestRise;
      rescale.factor[row] = rises ? power_of_two(-rise) : 1.0f;
      if (rises) top[row] = largest[row];
      total[row] *= rescale.factor[row];
    }
    return rescale;
  }

  // Replaces values by probabilities.
  template <u32 kRows, u32 kColumns>
  __device__ __forceinline__ void exponentiate(Accumulators<kRows, kColumns>& values) {
#pragma unroll
    for (u32 row = 0; row < kOwnRows; ++row) {
      // A row that has seen no key yet has only values of -infinity.
      const float base = top[row] == -kInfinity ? 0.0f : top[row] * exponent;
#pragma unroll
      for (u32 i = 0; i < kColumns / 4; ++i) {
        const float p = power_of_two(fmaf(values.at(row, i), exponent, -base));
        values.at(row, i) = p;
        total[row] += p;
      }
    }
  }

  // After the last block: the factor that normalises each output row, and each row's log-sum-exp.
  // A value (ScoreForm) times `unit` is a score. With kSink, exp(sink) is added to each
  // row's denominator.
  template <bool kSink>
  __device__ __forceinline__ void finish(float (&inverse)[kOwnRows], float (&lse)[kOwnRows],
                                         float unit, float sink) const {
#pragma unroll
    for (u32 row = 0; row < kOwnRows; ++row) {
      const float sum = sum_of_quad(total[row]);
      if (kSink && sink != -kInfinity) {
        const float score = top[row] * unit;
        const float largest = fmaxf(score, sink);
        const float factor = power_of_two((score - largest) * kLog2E);
        const float all = fmaf(sum, factor, power_of_two((sink - largest) * kLog2E));
        inverse[row] = factor / all;
        lse[row] = largest + logf(all);
      } else {
        inverse[row] = sum == 0 ? 0.0f : 1.0f / sum;
        lse[row] = fmaf(top[row], unit, logf(sum));
      }
    }
  }
};

}  // namespace coda::device::attention
