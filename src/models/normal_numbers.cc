// SPDX-License-Identifier: Apache-2.0
// Plain loops, which the compiler makes vector code of, once for each of Highway's instruction
// sets. 64 random bits make two numbers.
#include "models/normal_numbers.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "models/normal_numbers.cc"
#include "hwy/foreach_target.h"  // NOLINT: must come before highway.h
#include "hwy/highway.h"

#include <bit>
#include <cmath>
#include <cstddef>
#include <numbers>

#include "models/counter_random.h"

HWY_BEFORE_NAMESPACE();
namespace coda::HWY_NAMESPACE {

constexpr size_t kPairs = 256;  // at a time: their words and numbers stay in the first cache

// -log of (word + 1/2) / 2^31 for a word below 2^31. The mantissa is brought to [sqrt(1/2),
// sqrt(2)); log(1 + f) is Cephes' polynomial in f.
inline float minus_log_of_share(uint32_t word) {
  const float x = static_cast<float>(static_cast<int32_t>(word)) + 0.5F;
  const auto bits = std::bit_cast<int32_t>(x);
  const int32_t exponent = (bits - 0x3f3504f3) >> 23;  // of sqrt(1/2)
  const float f = std::bit_cast<float>(bits - (exponent << 23)) - 1;
  const auto e = static_cast<float>(31 - exponent);
  float p = 7.0376836292e-2F;
  p = p * f - 1.1514610310e-1F;
  p = p * f + 1.1676998740e-1F;
  p = p * f - 1.2420140846e-1F;
  p = p * f + 1.4249322787e-1F;
  p = p * f - 1.6668057665e-1F;
  p = p * f + 2.0000714765e-1F;
  p = p * f - 2.4999993993e-1F;
  p = p * f + 3.3333331174e-1F;
  const float log_of_mantissa = f + f * f * (p * f - 0.5F);
  return e * std::numbers::ln2_v<float> - log_of_mantissa;
}

// A point on the circle: an angle within an eighth of a turn, then which quarter of the circle.
inline void point_on_circle(uint32_t word, float& x, float& y) {
  constexpr float kScale = std::numbers::pi_v<float> / 4 * 0x1p-31F;
  const float a = static_cast<float>(static_cast<int32_t>(word << 2)) * kScale;
  const float s = a * a;
  const float sine =
      a + a * s * ((-1.9515295891e-4F * s + 8.3321608736e-3F) * s - 1.6666654611e-1F);
  const float cosine =
      1 +
      s * (((2.443315711809948e-5F * s - 1.388731625493765e-3F) * s + 4.166664568298827e-2F) * s -
           0.5F);
  const float either = std::bit_cast<float>(std::bit_cast<uint32_t>(cosine) ^ (word & 0x80000000U));
  const bool is_upright = (word & 0x40000000U) != 0;
  x = is_upright ? sine : either;
  y = is_upright ? either : sine;
}

// Numbers 2 * first and on, at most 2 * kPairs.
void fill_pairs(uint64_t seed, uint64_t stream, uint64_t first, float mean, float deviation,
                std::span<float> values) {
  const size_t pairs = (values.size() + 1) / 2;
  uint32_t low[kPairs], high[kPairs];
  for (size_t i = 0; i < pairs; ++i) {
    const uint64_t word = random_bits(seed, stream, first + i);
    low[i] = static_cast<uint32_t>(word);
    high[i] = static_cast<uint32_t>(word >> 32);
  }
  float x[kPairs], y[kPairs];
  for (size_t i = 0; i < pairs; ++i) {
    const float radius = std::sqrt(2 * minus_log_of_share(high[i] >> 1));
    point_on_circle(low[i], x[i], y[i]);
    x[i] = mean + deviation * (radius * x[i]);
    y[i] = mean + deviation * (radius * y[i]);
  }
  for (size_t i = 0; i < values.size() / 2; ++i) {
    values[2 * i] = x[i];
    values[2 * i + 1] = y[i];
  }
  if (values.size() % 2 != 0) values.back() = x[pairs - 1];
}

// Numbers `first`, which is even, and on.
void fill_part(uint64_t seed, uint64_t stream, uint64_t first, float mean, float deviation,
               std::span<float> values) {
  for (size_t at = 0; at < values.size(); at += 2 * kPairs) {
    fill_pairs(seed, stream, (first + at) / 2, mean, deviation,
               values.subspan(at, std::min(2 * kPairs, values.size() - at)));
  }
}

}  // namespace coda::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace coda {

HWY_EXPORT(fill_part);

void fill_normal(uint64_t seed, uint64_t stream, float mean, float deviation,
                 std::span<float> values) {
  constexpr size_t kPart = size_t{1} << 15;
#pragma omp parallel for schedule(static)
  for (size_t first = 0; first < values.size(); first += kPart) {
    HWY_DYNAMIC_DISPATCH(fill_part)
    (seed, stream, first, mean, deviation,
     values.subspan(first, std::min(kPart, values.size() - first)));
  }
}

}  // namespace coda
#endif  // HWY_ONCE
