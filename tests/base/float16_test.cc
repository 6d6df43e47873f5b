// SPDX-License-Identifier: Apache-2.0
// The 16-bit conversions: every 16-bit number survives a round trip, and rounding is to nearest
// even (judged by searching the two neighbours among all numbers of the type).
#include "coda/float16.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace coda {
namespace {

struct Type {
  const char* name;
  uint16_t (*from)(float);
  float (*to)(uint16_t);
  uint16_t infinity;
};
constexpr Type kTypes[] = {{"bf16", bf16_from_float, float_from_bf16, 0x7f80},
                           {"f16", f16_from_float, float_from_f16, 0x7c00}};

TEST(Float16, EveryNumberSurvivesARoundTrip) {
  for (const Type& type : kTypes) {
    for (int bits = 0; bits < 65536; ++bits) {
      const float value = type.to(static_cast<uint16_t>(bits));
      if (std::isnan(value)) {
        EXPECT_GT(bits & 0x7fff, type.infinity) << type.name;
        EXPECT_TRUE(std::isnan(type.to(type.from(value)))) << type.name << bits;
      } else {
        EXPECT_LE(bits & 0x7fff, type.infinity) << type.name;
        EXPECT_EQ(type.from(value), bits) << type.name;
      }
    }
  }
}

// The magnitudes of a type are ordered as their bits, so the neighbours of a value are found by
// bisection; the infinity stands for the number that would follow the largest finite one.
uint16_t nearest_even(const Type& type, float value) {
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const double magnitude = std::fabs(static_cast<double>(value));
  uint16_t low = 0;
  uint16_t high = type.infinity;
  while (high - low > 1) {
    const uint16_t middle = static_cast<uint16_t>((low + high) / 2);
    (type.to(middle) <= magnitude ? low : high) = middle;
  }
  const double below = type.to(low);
  const double step = high == type.infinity ? below - type.to(static_cast<uint16_t>(low - 1))
                                            : type.to(high) - below;
  const double middle = below + step / 2;
  const bool up = magnitude > middle || (magnitude == middle && low % 2 == 1);
  return static_cast<uint16_t>(sign | (up ? high : low));
}

TEST(Float16, RoundsToNearestEven) {
  for (const Type& type : kTypes) {
    std::mt19937 random(11);
    for (int trial = 0; trial < 200000; ++trial) {
      // Random bits; every fourth is a tie or next to one.
      uint32_t bits = static_cast<uint32_t>(random());
      if (trial % 4 == 0) {
        const auto number = static_cast<uint16_t>(random() & 0x7fffu);
        const float low = type.to(number);
        const float high = type.to(static_cast<uint16_t>(number + 1));
        if (!std::isfinite(low) || !std::isfinite(high)) continue;
        bits = std::bit_cast<uint32_t>(low / 2 + high / 2) + random() % 3 - 1;
      }
      const float value = std::bit_cast<float>(bits);
      if (!std::isfinite(value)) continue;
      ASSERT_EQ(type.from(value), nearest_even(type, value)) << type.name << " " << value;
    }
  }
}

TEST(Float16, EdgesOfTheRange) {
  EXPECT_EQ(f16_from_float(65504.0f), 0x7bff);
  EXPECT_EQ(f16_from_float(65519.99f), 0x7bff);
  EXPECT_EQ(f16_from_float(65520.0f), 0x7c00);
  EXPECT_EQ(f16_from_float(0x1p-25f), 0);
  EXPECT_EQ(f16_from_float(std::nextafter(0x1p-25f, 1.0f)), 1);
  EXPECT_EQ(bf16_from_float(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_EQ(bf16_from_float(-0.0f), 0x8000);
  EXPECT_EQ(f16_from_float(-std::numeric_limits<float>::infinity()), 0xfc00);
  EXPECT_TRUE(std::isnan(float_from_bf16(bf16_from_float(std::bit_cast<float>(0x7f800001u)))));
  EXPECT_TRUE(std::isnan(float_from_f16(f16_from_float(std::bit_cast<float>(0x7f800001u)))));
}

}  // namespace
}  // namespace coda
