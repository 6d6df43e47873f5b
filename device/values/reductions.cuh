// SPDX-License-Identifier: Apache-2.0
// The state of a running reduction of each kind, and how two states merge. Each kernel has a fixed
// order of merging, so results are bitwise repeatable.
// Invariant: merging with the start value changes nothing; a maximum of only NaN is NaN.
#pragma once

#include "device/ptx/lanes.cuh"
#include "device/values/math.cuh"

namespace coda::device {

// As in coda/partial.h; a kind with one lane is a fold.
enum class Reduction { sum, max, log_sum_exp, mean_m2, abs_max, entropy };

// Kinds with a sum of exponentials.
constexpr bool has_exponentials(Reduction kind) {
  return kind == Reduction::log_sum_exp || kind == Reduction::entropy;
}
// The fields of each kind. sum: total. max, abs_max: maximum. log_sum_exp: maximum, sum of e =
// exp(x - maximum). entropy: the same, and the sum of (x - maximum) e. mean_m2: count, mean, sum of
// squared differences from the mean. Partials in memory lack the count.
constexpr u32 lanes_of(Reduction kind) {
  return kind == Reduction::entropy                                     ? 3
         : kind == Reduction::mean_m2 || kind == Reduction::log_sum_exp ? 2
                                                                        : 1;
}
constexpr u32 fields_of(Reduction kind) {
  return lanes_of(kind) + (kind == Reduction::mean_m2 ? 1 : 0);
}
constexpr u32 first_lane_field(Reduction kind) { return kind == Reduction::mean_m2 ? 1 : 0; }

// The fold of one value, of two folds, and the start value.
template <Reduction kKind>
__device__ __forceinline__ float of_one(float x) {
  return kKind == Reduction::abs_max ? fabsf(x) : x;
}
template <Reduction kKind>
__device__ __forceinline__ float fold(float a, float b) {
  static_assert(lanes_of(kKind) == 1);
  if constexpr (kKind == Reduction::sum) {
    return a + b;
  } else {
    return maximum(a, b);
  }
}
constexpr float start_of(Reduction kind) {
  return kind == Reduction::sum || kind == Reduction::mean_m2 ? 0.0f : -kInfinity;
}

template <Reduction kKind>
struct Reduced {
  float field[fields_of(kKind)];

  __device__ __forceinline__ Reduced() {
#pragma unroll
    for (float& x : field) x = 0.0f;
    field[0] = start_of(kKind);
  }
  // From the fields of a partial in memory, which was reduced from `count` values (entropy: from
  // one value).
  __device__ __forceinline__ Reduced(float first, float second, float count) {
    field[first_lane_field(kKind)] = first;
    if constexpr (lanes_of(kKind) == 2) field[first_lane_field(kKind) + 1] = second;
    if constexpr (lanes_of(kKind) == 3) field[2] = 0.0f;  // of one value
    if constexpr (kKind == Reduction::mean_m2) field[0] = count;
  }
  __device__ __forceinline__ float lane(u32 i) const { return field[first_lane_field(kKind) + i]; }
};

// exp(x - largest); 1 if x is the largest, even if infinite. Selects the difference instead of the
// result, because selecting between 1 and an exponential compiles to a branch, which would delay
// the next exponential.
__device__ __forceinline__ float weight_below(float x, float largest) {
  return expf(x == largest ? 0.0f : x - largest);
}

// Adds exp(x - largest) to a sum, up to a factor that total_below() corrects: a multiply-add, an
// exponential and an addition per value.
struct SumBelow {
  float exponent;  // of the largest, as a power of two, rounded

  __device__ __forceinline__ explicit SumBelow(float largest) : exponent(largest * kLog2E) {}
  __device__ __forceinline__ float operator()(float sum, float x) const {
    return sum + power_of_two(fmaf(x, kLog2E, -exponent));
  }
};

// The factor corrects the rounding of the exponent and is equal for all values. From 2^30 on, the
// factor or the exponent may exceed the range of floats, and infinity minus infinity is undefined.
// But there the logarithm of the sum does not affect the digits of the largest value, so the sum
// may be 1.
__device__ __forceinline__ float total_below(float largest, float sum) {
  const float lost = power_of_two(fmaf(-largest, kLog2E, largest * kLog2E));
  return fabsf(largest) < 0x1p30f ? lost * sum : 1.0f;
}

// As SumBelow, and adds (x - largest) exp(x - largest) to a second sum; totals_below() corrects
// both. Far below the largest value the exponential is 0, and its exponent is kept finite.
struct EntropySums {
  float sum = 0.0f;
  float shifted = 0.0f;  // in powers of two
};
struct EntropyBelow {
  float exponent;

  __device__ __forceinline__ explicit EntropyBelow(float largest) : exponent(largest * kLog2E) {}
  __device__ __forceinline__ EntropySums operator()(EntropySums sums, float x) const {
    const float power = fmaf(x, kLog2E, -exponent);
    const float e = power_of_two(power);
    return {sums.sum + e, fmaf(fmaxf(power, -200.0f), e, sums.shifted)};
  }
};

// From 2^30 on, the reasoning of total_below() applies: only the largest value has any weight.
__device__ __forceinline__ EntropySums totals_below(float largest, EntropySums sums) {
  const float off = fmaf(-largest, kLog2E, largest * kLog2E);
  const float lost = power_of_two(off);
  if (!(fabsf(largest) < 0x1p30f)) return {1.0f, 0.0f};
  return {lost * sums.sum, lost / kLog2E * fmaf(off, sums.sum, sums.shifted)};
}

// A part's sum of shifted exponentials relative to a larger maximum, where the part has weight
// `weight`. A part of weight 0 adds nothing, however far below the maximum it is.
__device__ __forceinline__ float shifted_below(float own, float sum, float shifted, float largest,
                                               float weight) {
  const float shift = own == largest ? 0.0f : own - largest;
  return weight == 0.0f ? 0.0f : weight * fmaf(shift, sum, shifted);
}

template <Reduction kKind>
__device__ __forceinline__ Reduced<kKind> merge(const Reduced<kKind>& a, const Reduced<kKind>& b) {
  Reduced<kKind> result;
  if constexpr (lanes_of(kKind) == 1) {
    result.field[0] = fold<kKind>(a.field[0], b.field[0]);
  } else if constexpr (has_exponentials(kKind)) {
    const float largest = maximum(a.field[0], b.field[0]);
    const float of_a = weight_below(a.field[0], largest);
    const float of_b = weight_below(b.field[0], largest);
    result.field[0] = largest;
    result.field[1] = a.field[1] * of_a + b.field[1] * of_b;
    if constexpr (kKind == Reduction::entropy)
      result.field[2] = shifted_below(a.field[0], a.field[1], a.field[2], largest, of_a) +
                        shifted_below(b.field[0], b.field[1], b.field[2], largest, of_b);
  } else {
    // Chan's formula.
    const float count = a.field[0] + b.field[0];
    const float share = count > 0.0f ? b.field[0] / count : 0.0f;
    const float delta = b.field[1] - a.field[1];
    result.field[0] = count;
    result.field[1] = a.field[1] + delta * share;
    result.field[2] = a.field[2] + b.field[2] + delta * delta * (a.field[0] * share);
  }
  return result;
}

// Adds one value.
template <Reduction kKind>
__device__ __forceinline__ void add(Reduced<kKind>& to, float x) {
  if constexpr (lanes_of(kKind) == 1) x = of_one<kKind>(x);
  to = merge(to, Reduced<kKind>(x, has_exponentials(kKind) ? 1.0f : 0.0f, 1.0f));
}

// Merges with the lane whose index differs by `mask`. Both lanes get the same bits, because the
// lower lane's part comes first.
template <Reduction kKind>
__device__ __forceinline__ Reduced<kKind> merge_lanes(const Reduced<kKind>& own, u32 mask) {
  Reduced<kKind> other;
#pragma unroll
  for (u32 i = 0; i < fields_of(kKind); ++i) other.field[i] = exchange(own.field[i], mask);
  const bool is_upper = (thread_index() & mask) != 0;
  Reduced<kKind> lower = own;
  Reduced<kKind> upper = other;
#pragma unroll
  for (u32 i = 0; i < fields_of(kKind); ++i) {
    lower.field[i] = is_upper ? other.field[i] : own.field[i];
    upper.field[i] = is_upper ? own.field[i] : other.field[i];
  }
  return merge(lower, upper);
}

}  // namespace coda::device
