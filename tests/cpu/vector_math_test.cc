// SPDX-License-Identifier: Apache-2.0
// Elementwise kernels against float64 bodies of the same operations: within a few ulp everywhere,
// the same special values, and the same bits wherever an element stands in a row; on each
// instruction set that this processor has.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "coda/elementwise.h"
#include "coda/float16.h"
#include "cpu/instruction_sets.h"
#include "cpu/tile_memory.h"
#include "cpu/vector_ops.h"

namespace coda::cpu {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// Distance in units of the last place of the float nearest to `exact`, which is normal.
double ulps(float value, double exact) {
  const float nearest = static_cast<float>(exact);
  if (std::isinf(nearest) || std::isinf(value)) return value == nearest ? 0 : 1e9;
  return std::abs(value - exact) / std::ldexp(1.0, std::ilogb(exact) - 23);
}

std::vector<float> run(Elementwise op, const std::vector<float>& a, const std::vector<float>& b,
                       const std::vector<float>& c) {
  const int64_t n = static_cast<int64_t>(a.size());
  std::vector<float> out(a.size());
  const Source sources[3] = {{a.data()}, {b.data()}, {c.data()}};
  elementwise(op, sources, {out.data(), 0, 1, n});
  return out;
}

// Random bit patterns (all magnitudes), values of moderate size, and the special ones.
std::vector<float> arguments(uint64_t seed, size_t count) {
  std::mt19937 random(static_cast<uint32_t>(seed));
  std::vector<float> values = {0.0f,    -0.0f,  1.0f,    -1.0f,   kInfinity, -kInfinity, kNaN,
                               1e-45f,  1e-38f, -1e-40f, 88.7f,   88.8f,     -87.3f,     -103.9f,
                               -104.5f, 0.625f, -0.625f, 0.9277f, 3.9f,      -4.1f,      3.4e38f};
  while (values.size() < count) {
    const bool any = random() % 2 == 0;
    values.push_back(any ? std::bit_cast<float>(static_cast<uint32_t>(random()))
                         : std::uniform_real_distribution<float>(-20, 20)(random));
  }
  return values;
}

// The largest error in ulp that each function is allowed; the others are exact or correctly
// rounded. gelu's are relative to the larger of |x| eps and the value: 1 + erf and 1 + tanh cancel
// for negative x.
double allowed(Elementwise op) {
  switch (op) {
    case Elementwise::exp: return 2;
    case Elementwise::log: return 2;
    case Elementwise::rsqrt: return 1.6;
    case Elementwise::sigmoid: return 3;
    case Elementwise::silu: return 4;
    case Elementwise::tanh: return 4;
    case Elementwise::erf: return 2;
    default: return 0.5;
  }
}

TEST(VectorMath, AgreesWithFloat64AndKeepsSpecialValues) {
  for_each_instruction_set([] {
    const std::vector<float> a = arguments(1, 20000);
    std::vector<float> b = arguments(2, 20000);
    std::vector<float> c = arguments(3, 20000);
    std::shuffle(b.begin(), b.end(), std::mt19937(4));
    std::shuffle(c.begin(), c.end(), std::mt19937(5));
    for (int k = 0; k < kElementwiseCount; ++k) {
      const Elementwise op = static_cast<Elementwise>(k);
      SCOPED_TRACE(info(op).name);
      const std::vector<float> out = run(op, a, b, c);
      for (size_t i = 0; i < a.size(); ++i) {
        const double exact = info(op).evaluate(a[i], b[i], c[i]);
        if (std::isinf(exact) && out[i] == exact) continue;
        if (std::isnan(exact)) {
          ASSERT_TRUE(std::isnan(out[i])) << a[i] << " " << b[i] << " gives " << out[i];
          continue;
        }
        if (op == Elementwise::gelu || op == Elementwise::gelu_tanh) {
          ASSERT_LE(std::abs(out[i] - exact), 4e-7 * std::abs(a[i]) + 1e-37) << a[i];
          continue;
        }
        // Below the smallest normal float a result (in silu, its sigmoid) may be flushed to zero.
        const double tiny = std::numeric_limits<float>::min() *
                            (op == Elementwise::silu ? std::max(1.0f, std::abs(a[i])) : 1.0f);
        if (std::abs(exact) < tiny) {
          ASSERT_LE(std::abs(out[i]), tiny);
          continue;
        }
        const double error = ulps(out[i], exact);
        ASSERT_LE(error, allowed(op))
            << a[i] << " " << b[i] << " gives " << out[i] << ", not " << exact;
      }
    }
  });
}

TEST(VectorMath, AnElementsBitsDoNotDependOnItsPlace) {
  for_each_instruction_set([] {
    const std::vector<float> a = arguments(6, 300);
    const std::vector<float> b = arguments(7, 300);
    for (int k = 0; k < kElementwiseCount; ++k) {
      const Elementwise op = static_cast<Elementwise>(k);
      const std::vector<float> all = run(op, a, b, b);
      for (size_t start : {1, 5, 16, 31, 297}) {
        const std::vector<float> part =
            run(op, {a.begin() + start, a.end()}, {b.begin() + start, b.end()},
                {b.begin() + start, b.end()});
        for (size_t i = 0; i < part.size(); ++i) {
          ASSERT_EQ(std::bit_cast<uint32_t>(part[i]), std::bit_cast<uint32_t>(all[start + i]))
              << info(op).name << " of " << a[start + i];
        }
      }
    }
  });
}

// Of operands that are planes, one row for all rows, one value for each row, or one value for all.
TEST(VectorMath, EveryKindOfOperandGivesTheBitsOfPlanesAndNothingIsWrittenBehindARow) {
  constexpr int64_t kRows = 3;
  constexpr int64_t kStride = 48;
  constexpr float kUntouched = -77.5f;
  for_each_instruction_set([&] {
    const std::vector<float> data = arguments(8, 3 * kRows * kStride);
    for (int k = 0; k < kElementwiseCount * 64; ++k) {
      const Elementwise op = static_cast<Elementwise>(k / 64);
      Source sources[3];
      Source planes[3];
      std::vector<float> copies[3];
      for (int o = 0; o < 3; ++o) {
        const bool has_rows = (k >> (2 * o) & 1) != 0;
        const bool is_constant = (k >> (2 * o + 1) & 1) != 0;
        const float* first = data.data() + o * kRows * kStride;
        sources[o] = {first, has_rows ? kStride : 0, is_constant};
        for (int64_t i = 0; i < kRows * kStride; ++i)
          copies[o].push_back(
              first[(has_rows ? i / kStride * kStride : 0) + (is_constant ? 0 : i % kStride)]);
        planes[o] = {copies[o].data(), kStride};
      }
      for (int64_t cols : {29, 32, 48}) {
        std::vector<float> got(kRows * kStride, kUntouched), want(kRows * kStride, kUntouched);
        elementwise(op, sources, {got.data(), kStride, kRows, cols});
        for (int64_t i = 0; i < kRows; ++i) {
          Source rows[3];
          for (int o = 0; o < 3; ++o) rows[o] = {planes[o].data + i * kStride};
          elementwise(op, rows, {want.data() + i * kStride, 0, 1, cols});
        }
        for (size_t j = 0; j < got.size(); ++j) {
          ASSERT_EQ(std::bit_cast<uint32_t>(got[j]), std::bit_cast<uint32_t>(want[j]))
              << info(op).name << " way " << k % 64;
          ASSERT_TRUE(static_cast<int64_t>(j) % kStride < cols || got[j] == kUntouched);
        }
      }
    }
  });
}

TEST(VectorMath, RoundingToStorageIsThatOfScalarCode) {
  for_each_instruction_set([] {
    std::vector<float> values = arguments(9, 40000);
    // Halfway cases of both types, subnormals of f16, its overflow.
    for (uint32_t high = 0; high < 0x10000; high += 7) {
      values.push_back(std::bit_cast<float>(high << 16 | 0x8000u));
      const float half = float_from_f16(static_cast<uint16_t>(high));
      const float next = float_from_f16(static_cast<uint16_t>(high + 1));
      values.push_back((half + next) / 2);
    }
    for (float x : {65504.0f, 65519.9f, 65520.0f, 65536.0f, 1e-8f, 2.98e-8f, 5.97e-8f}) {
      values.push_back(x);
      values.push_back(-x);
    }
    const int64_t n = static_cast<int64_t>(values.size());
    std::vector<float> out(values.size());
    for (DType type : {DType::bf16, DType::f16}) {
      round_to(type, {values.data()}, {out.data(), 0, 1, n});
      for (int64_t i = 0; i < n; ++i) {
        const float want = type == DType::bf16 ? float_from_bf16(bf16_from_float(values[i]))
                                               : float_from_f16(f16_from_float(values[i]));
        ASSERT_EQ(std::bit_cast<uint32_t>(out[i]), std::bit_cast<uint32_t>(want))
            << name_of(type) << " of " << values[i];
      }
    }
  });
}

// Whole vectors and ragged ends; subnormals of fp32, which the processor's own conversion drops.
TEST(VectorMath, StoringRoundsAsScalarCode) {
  for_each_instruction_set([] {
    std::vector<float> values = arguments(10, 4000);
    for (uint32_t bits = 0; bits < 0x01000000; bits += 0x3fff) {
      values.push_back(std::bit_cast<float>(bits));
      values.push_back(std::bit_cast<float>(bits | 0x80000000u));
      if (bits % 5 == 0) values.push_back(std::bit_cast<float>(0x3f800000u + bits));
    }
    for (uint32_t nan : {0x7f800001u, 0xffc12345u, 0x7fffffffu, 0x7f800000u, 0xff800000u}) {
      values.push_back(std::bit_cast<float>(nan));
    }
    const int64_t n = static_cast<int64_t>(values.size());
    for (int64_t cols : {n, n - 1, n - 15, int64_t{1}, int64_t{16}, int64_t{31}}) {
      std::vector<uint16_t> out(static_cast<size_t>(cols) + 1, 0x1234);
      store_strip(dense_view(out.data(), DType::bf16, 1, cols), {0, 1, nullptr}, 0, cols,
                  values.data() + n - cols, 0);
      for (int64_t j = 0; j < cols; ++j) {
        ASSERT_EQ(out[j], bf16_from_float(values[n - cols + j])) << values[n - cols + j];
      }
      EXPECT_EQ(out[cols], 0x1234) << "written past its end";
    }
  });
}

}  // namespace
}  // namespace coda::cpu
