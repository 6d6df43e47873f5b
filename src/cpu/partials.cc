// SPDX-License-Identifier: Apache-2.0
// Partial reductions, compiled once per instruction set. A row's span is reduced in vector lanes,
// with the tail masked by the identity of the reduction. Column spans take one row after another,
// so the height of a strip does not affect the result.
#include "cpu/partials.h"

#include <cmath>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/partials.cc"
#include "hwy/foreach_target.h"  // NOLINT: must come before highway.h
#include "hwy/highway.h"

#include "base/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace coda::cpu::HWY_NAMESPACE {

constexpr float kNegativeInfinity = -std::numeric_limits<float>::infinity();

HWY_INLINE Vec max_or_nan(Vec a, Vec b) { return keep_nan(a, keep_nan(b, hn::Max(a, b))); }

// Calls step(vector, mask of its valid lanes) over a row's span of both planes, in order.
template <class Step>
HWY_INLINE void for_span(const float* src0, const float* src1, int64_t cols, const Step& step) {
  const F32 d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (const float* src : {src0, src1}) {
    if (src == nullptr) continue;
    for (int64_t j = 0; j < cols; j += lanes) {
      step(hn::LoadU(d, src + j), hn::FirstN(d, static_cast<size_t>(HWY_MIN(lanes, cols - j))));
    }
  }
}

// Folds (kinds with one lane): the start value, and adding a value.
template <PartialKind kKind>
HWY_INLINE Vec start() {
  return set(kKind == PartialKind::max ? kNegativeInfinity : 0.0f);
}
template <PartialKind kKind>
HWY_INLINE Vec fold(Vec acc, Vec v) {
  if constexpr (kKind == PartialKind::sum) return hn::Add(acc, v);
  if constexpr (kKind == PartialKind::abs_max) return max_or_nan(acc, hn::Abs(v));
  return max_or_nan(acc, v);
}

template <PartialKind kKind>
HWY_INLINE float fold_span(const float* src0, const float* src1, int64_t cols) {
  Vec acc = start<kKind>();
  for_span(src0, src1, cols, [&](Vec v, auto valid) {
    acc = fold<kKind>(acc, hn::IfThenElse(valid, v, start<kKind>()));
  });
  if constexpr (kKind == PartialKind::sum) return hn::GetLane(hn::SumOfLanes(F32(), acc));
  // MaxOfLanes may lose a NaN.
  const bool has_nan = !hn::AllTrue(F32(), hn::Eq(acc, acc));
  return has_nan ? std::numeric_limits<float>::quiet_NaN()
                 : hn::GetLane(hn::MaxOfLanes(F32(), acc));
}

// One vector of columns; `state` as column_partial has it.
template <PartialKind kKind>
HWY_INLINE void fold_columns(const float* src, int64_t src_stride, int64_t rows, bool fresh,
                             float* state) {
  const F32 d;
  Vec acc = fresh ? start<kKind>() : hn::LoadU(d, state);
  for (int64_t i = 0; i < rows; ++i) acc = fold<kKind>(acc, hn::LoadU(d, src + i * src_stride));
  hn::StoreU(acc, d, state);
}

// x e, of what weighs nothing 0 however large x is.
HWY_INLINE Vec weighed(Vec x, Vec e) {
  return hn::IfThenZeroElse(hn::Eq(e, hn::Zero(F32())), hn::Mul(x, e));
}

void row_partial_rows(PartialKind kind, const float* src0, const float* src1, int64_t src_stride,
                      int64_t rows, int64_t cols, float* dst, int64_t row_stride,
                      int64_t lane_stride) {
  const F32 d;
  const float count = static_cast<float>(src1 != nullptr ? 2 * cols : cols);
  for (int64_t i = 0; i < rows; ++i) {
    const float* a = src0 + i * src_stride;
    const float* b = src1 != nullptr ? src1 + i * src_stride : nullptr;
    float* out = dst + i * row_stride;
    switch (kind) {
      case PartialKind::sum: *out = fold_span<PartialKind::sum>(a, b, cols); break;
      case PartialKind::max: *out = fold_span<PartialKind::max>(a, b, cols); break;
      case PartialKind::abs_max: *out = fold_span<PartialKind::abs_max>(a, b, cols); break;
      case PartialKind::log_sum_exp:
      case PartialKind::entropy: {
        const float max = fold_span<PartialKind::max>(a, b, cols);
        Vec acc = hn::Zero(d);
        Vec shifted = hn::Zero(d);
        if (max != kNegativeInfinity) {  // of -inf alone the sums are 0
          for_span(a, b, cols, [&](Vec v, auto valid) {
            const Vec below = hn::Sub(v, set(max));
            const Vec e = hn::IfThenElseZero(valid, exp_of_negative(below));
            acc = hn::Add(acc, e);
            shifted = hn::Add(shifted, weighed(below, e));
          });
        }
        out[0] = max;
        out[lane_stride] = hn::GetLane(hn::SumOfLanes(d, acc));
        if (kind == PartialKind::entropy)
          out[2 * lane_stride] = hn::GetLane(hn::SumOfLanes(d, shifted));
        break;
      }
      case PartialKind::mean_m2: {
        const float mean = fold_span<PartialKind::sum>(a, b, cols) / count;
        Vec acc = hn::Zero(d);
        for_span(a, b, cols, [&](Vec v, auto valid) {
          const Vec difference = hn::IfThenElseZero(valid, hn::Sub(v, set(mean)));
          acc = hn::MulAdd(difference, difference, acc);
        });
        out[0] = mean;
        out[lane_stride] = hn::GetLane(hn::SumOfLanes(d, acc));
        break;
      }
    }
  }
}

void column_partial_rows(PartialKind kind, const float* src, int64_t src_stride, int64_t rows,
                         int64_t cols, int64_t row, float* state, int64_t state_stride) {
  const F32 d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const bool fresh = row == 0;
  for (int64_t j = 0; j < cols; j += lanes) {
    float* s0 = state + j;
    float* s1 = state + state_stride + j;
    float* s2 = state + 2 * state_stride + j;
    const float* p = src + j;
    switch (kind) {
      case PartialKind::sum: fold_columns<PartialKind::sum>(p, src_stride, rows, fresh, s0); break;
      case PartialKind::max: fold_columns<PartialKind::max>(p, src_stride, rows, fresh, s0); break;
      case PartialKind::abs_max:
        fold_columns<PartialKind::abs_max>(p, src_stride, rows, fresh, s0);
        break;
      case PartialKind::log_sum_exp:
      case PartialKind::entropy: {
        const bool has_shifted = kind == PartialKind::entropy;
        Vec max = fresh ? set(kNegativeInfinity) : hn::LoadU(d, s0);
        Vec sum = fresh ? hn::Zero(d) : hn::LoadU(d, s1);
        Vec shifted = fresh || !has_shifted ? hn::Zero(d) : hn::LoadU(d, s2);
        for (int64_t i = 0; i < rows; ++i) {
          const Vec v = hn::LoadU(d, p + i * src_stride);
          // The new sum is sum * exp(max - new max) + exp(v - new max), one of which is exp(0).
          const auto grows = hn::Gt(v, max);
          const Vec below = hn::Neg(hn::Abs(hn::Sub(v, max)));
          const Vec e = exp_of_negative(below);
          const auto is_nothing = hn::Eq(v, set(kNegativeInfinity));
          // What was summed moves down by max - new max, or v adds itself.
          const Vec moved = hn::MulAdd(shifted, e, weighed(below, hn::Mul(sum, e)));
          const Vec more = hn::IfThenElse(grows, moved, hn::Add(shifted, weighed(below, e)));
          shifted = hn::IfThenElse(is_nothing, shifted, more);
          const Vec next = hn::IfThenElse(grows, hn::MulAdd(sum, e, set(1.0f)), hn::Add(sum, e));
          sum = hn::IfThenElse(is_nothing, sum, next);
          max = max_or_nan(max, v);
        }
        hn::StoreU(max, d, s0);
        hn::StoreU(sum, d, s1);
        if (has_shifted) hn::StoreU(shifted, d, s2);
        break;
      }
      case PartialKind::mean_m2: {
        Vec mean = fresh ? hn::Zero(d) : hn::LoadU(d, s0);
        Vec squares = fresh ? hn::Zero(d) : hn::LoadU(d, s1);
        for (int64_t i = 0; i < rows; ++i) {
          const Vec v = hn::LoadU(d, p + i * src_stride);
          const Vec before = hn::Sub(v, mean);
          mean = hn::MulAdd(before, set(1.0f / static_cast<float>(row + i + 1)), mean);
          squares = hn::MulAdd(before, hn::Sub(v, mean), squares);
        }
        hn::StoreU(mean, d, s0);
        hn::StoreU(squares, d, s1);
        break;
      }
    }
  }
}

}  // namespace coda::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace coda::cpu {

HWY_EXPORT(row_partial_rows);
HWY_EXPORT(column_partial_rows);

void row_partial(PartialKind kind, const float* src0, const float* src1, int64_t src_stride,
                 int64_t rows, int64_t cols, float* dst, int64_t row_stride, int64_t lane_stride) {
  HWY_DYNAMIC_DISPATCH(row_partial_rows)(kind, src0, src1, src_stride, rows, cols, dst, row_stride,
                                         lane_stride);
}

void column_partial(PartialKind kind, const float* src, int64_t src_stride, int64_t rows,
                    int64_t cols, int64_t row, float* state, int64_t state_stride) {
  HWY_DYNAMIC_DISPATCH(column_partial_rows)(kind, src, src_stride, rows, cols, row, state,
                                            state_stride);
}

float combine(PartialKind kind, const float* partials, int64_t count, int64_t step,
              int64_t lane_stride, int64_t full, int64_t last, int lane) {
  if (lane == kBothResults) {
    const auto one = [&](int which) {
      return combine(kind, partials, count, step, lane_stride, full, last, which);
    };
    return one(0) + one(1);
  }
  const float* second = partials + lane_stride;
  switch (kind) {
    case PartialKind::sum: {
      double total = 0;
      for (int64_t p = 0; p < count; ++p) total += partials[p * step];
      return static_cast<float>(total);
    }
    case PartialKind::max:
    case PartialKind::abs_max:
    case PartialKind::log_sum_exp:
    case PartialKind::entropy: {
      float max = -std::numeric_limits<float>::infinity();
      for (int64_t p = 0; p < count; ++p) {
        const float value = partials[p * step];
        if (!(value <= max))
          max = value;  // a NaN is kept, because every comparison with it is false
        if (std::isnan(max)) break;
      }
      if (info(kind).lanes == 1 || lane == 0) return max;
      double total = 0;
      double shifted = 0;
      for (int64_t p = 0; p < count; ++p) {
        const float sum = second[p * step];
        const double below = static_cast<double>(partials[p * step]) - max;
        const double weight = sum == 0 ? 0 : std::exp(below);
        if (weight == 0) continue;
        total += sum * weight;
        if (lane == 2) shifted += weight * (second[lane_stride + p * step] + below * sum);
      }
      if (lane == 1) return static_cast<float>(std::log(total));
      return std::isinf(max) ? std::numeric_limits<float>::quiet_NaN()
                             : static_cast<float>(std::log(total) - shifted / total);
    }
    case PartialKind::mean_m2: {
      double n = 0;
      double mean = 0;
      double squares = 0;
      for (int64_t p = 0; p < count; ++p) {
        const double m = static_cast<double>(p + 1 < count ? full : last);
        const double difference = partials[p * step] - mean;
        const double total = n + m;
        squares += second[p * step] + difference * difference * n * m / total;
        mean += difference * m / total;
        n = total;
      }
      return static_cast<float>(lane == 0 ? mean : squares);
    }
  }
  return 0;
}

}  // namespace coda::cpu
#endif  // HWY_ONCE
