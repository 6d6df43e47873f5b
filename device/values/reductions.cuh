// SPDX-License-Identifier: Apache-2.0
// The state of a running reduction of each kind, and how two states merge. Each kernel has a fixed
// order of merging, so results are bitwise repeatable.
// Invariant: merging with the start value changes nothing; a maximum of only NaN is NaN.
#pragma once

#include "device/ptx/lanes.cuh"
#include "device/values/math.cuh"

namespace coda::device {

// As coda/partial.h has them; one lane is a fold.
enum class Reduction { sum, max, log_sum_exp, mean_m2, abs_max, entropy };

// Kinds with a sum of exponentials.
constexpr bool has_exponentials(Reduction kind) {
  return kind == Reduction::log_sum_exp || kind == Reduction::entropy;
}
// sum: total. max, abs_max: largest. log_sum_exp: largest, sum of e = exp(x - largest). entropy:
// those, and the sum of (x - largest) e. mean_m2: count, mean, sum of squares about it. Partials in
// memory are the same without the count.
constexpr u32 lanes_of(Reduction kind) {
  return kind == Reduction::entropy                                     ? 3
         : kind == Reduction::mean_m2 || kind == Reduction::log_sum_exp ? 2
                                                                        : 1;
}
constexpr u32 fields_of(Reduction kind) {
  return lanes_of(kind) + (kind == Reduction::mean_m2 ? 1 : 0);
}
constexpr u32 first_lane_field(Reduction kind) { return kind == Reduction::mean_m2 ? 1 : 0; }

// What a fold has of one value, what it makes of two such, and what it starts with.
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
  // The fields of a partial of `count` values as it lies in memory; of an entropy only of one
  // value.
  __device__ __forceinline__ Reduced(float first, float second, float count) {
    field[first_lane_field(kKind)] = first;
    if constexpr (lanes_of(kKind) == 2) field[first_lane_field(kKind) + 1] = second;
    if constexpr (lanes_of(kKind) == 3) field[2] = 0.0f;  // of one value
    if constexpr (kKind == Reduction::mean_m2) field[0] = count;
  }
  __device__ __forceinline__ float lane(u32 i) const { return field[first_lane_field(kKind) + i]; }
};

// exp(x - largest), and 1 where x is the largest even if that is infinite. The difference is chosen
// rather than the result: a choice between 1 and an exponential is compiled as a branch around the
// exponential, behind which the next one waits.
__device__ __forceinline__ float weight_below(float x, float largest) {
  return expf(x == largest ? 0.0f : x - largest);
}

// Adds exp(x - largest), up to a factor that total_below() knows, to a sum: a multiplication and
// addition, an exponential and an addition for each value.
struct SumBelow {
  float exponent;  // of the largest, as a power of two, rounded

  __device__ __forceinline__ explicit SumBelow(float largest) : exponent(largest * kLog2E) {}
  __device__ __forceinline__ float operator()(float sum, float x) const {
    return sum + power_of_two(fmaf(x, kLog2E, -exponent));
  }
};

// The factor is what rounding the exponent lost, the same for all values. From 2^30 on it, or the
// exponent, may lie outside the range of floats, and nothing is subtracted from infinity; but there
// a logarithm of a sum adds nothing to the largest's digits, so the sum may as well be 1.
__device__ __forceinline__ float total_below(float largest, float sum) {
  const float lost = power_of_two(fmaf(-largest, kLog2E, largest * kLog2E));
  return fabsf(largest) < 0x1p30f ? lost * sum : 1.0f;
}

// What SumBelow does, and adds (x - largest) exp(x - largest) to a second sum, both up to what
// totals_below() knows. Far below the largest the exponential is 0, and its exponent is kept
// finite.
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

// From 2^30 on what total_below() says holds, and all that weighs something is the largest.
__device__ __forceinline__ EntropySums totals_below(float largest, EntropySums sums) {
  const float off = fmaf(-largest, kLog2E, largest * kLog2E);
  const float lost = power_of_two(off);
  if (!(fabsf(largest) < 0x1p30f)) return {1.0f, 0.0f};
  return {lost * sums.sum, lost / kLog2E * fmaf(off, sums.sum, sums.shifted)};
}

// A part's sum of shifted exponentials below a larger value, where the part's own weigh `weight`:
// what weighs nothing adds nothing, however far below it lies.
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
    // As Chan does.
    const float count = a.field[0] + b.field[0];
    const float share = count > 0.0f ? b.field[0] / count : 0.0f;
    const float delta = b.field[1] - a.field[1];
    result.field[0] = count;
    result.field[1] = a.field[1] + delta * share;
    result.field[2] = a.field[2] + b.field[2] + delta * delta * (a.field[0] * share);
  }
  return result;
}

// One value more.
template <Reduction kKind>
__device__ __forceinline__ void add(Reduced<kKind>& to, float x) {
  if constexpr (lanes_of(kKind) == 1) x = of_one<kKind>(x);
  to = merge(to, Reduced<kKind>(x, has_exponentials(kKind) ? 1.0f : 0.0f, 1.0f));
}

// With the lane whose number differs by `mask`; both get the same bits, the lower lane's part
// first.
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
