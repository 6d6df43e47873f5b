// SPDX-License-Identifier: Apache-2.0
// The two 8-bit types: every code is the number that the format says, comes back as itself, and a
// number becomes the nearest code.
#include "coda/float8.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace coda::tests::float8 {
namespace {

struct Case {
  const char* name;
  Float8Format format;
  float smallest;  // subnormal
};
constexpr Case kCases[] = {{"e4m3", kE4m3, 0x1p-9F}, {"e5m2", kE5m2, 0x1p-16F}};

TEST(Float8, KnownCodes) {
  EXPECT_EQ(float_from_e4m3(0x38), 1.0F);
  EXPECT_EQ(float_from_e4m3(0x7e), 448.0F);
  EXPECT_EQ(float_from_e4m3(0xb8), -1.0F);
  EXPECT_TRUE(std::isnan(float_from_e4m3(0x7f)));
  EXPECT_EQ(float_from_e5m2(0x3c), 1.0F);
  EXPECT_EQ(float_from_e5m2(0x7b), 57344.0F);
  EXPECT_EQ(float_from_e5m2(0x7c), INFINITY);
  EXPECT_TRUE(std::isnan(float_from_e5m2(0x7d)));
}

TEST(Float8, CodesAscendAndComeBackAsThemselves) {
  for (const Case& one : kCases) {
    SCOPED_TRACE(one.name);
    EXPECT_EQ(float_from_8_bits(one.format, 1), one.smallest);
    EXPECT_EQ(float_from_8_bits(one.format, one.format.largest), one.format.maximum);
    for (int code = 0; code <= one.format.largest; ++code) {
      const float x = float_from_8_bits(one.format, static_cast<uint8_t>(code));
      EXPECT_EQ(float_to_8_bits(one.format, x), code);
      EXPECT_EQ(float_to_8_bits(one.format, -x), code | 0x80);
      if (code > 0) {
        EXPECT_GT(x, float_from_8_bits(one.format, static_cast<uint8_t>(code - 1)));
      }
    }
  }
}

TEST(Float8, TheNearestCodeAndOfTwoTheEvenOne) {
  for (const Case& one : kCases) {
    SCOPED_TRACE(one.name);
    for (int code = 0; code < one.format.largest; ++code) {
      const float low = float_from_8_bits(one.format, static_cast<uint8_t>(code));
      const float high = float_from_8_bits(one.format, static_cast<uint8_t>(code + 1));
      const float middle = low + (high - low) / 2;
      EXPECT_EQ(float_to_8_bits(one.format, middle), code + code % 2) << middle;
      EXPECT_EQ(float_to_8_bits(one.format, std::nextafter(middle, low)), code) << middle;
      EXPECT_EQ(float_to_8_bits(one.format, std::nextafter(middle, high)), code + 1) << middle;
    }
  }
}

TEST(Float8, WhatIsTooLargeIsTheLargestAndNaNStaysNaN) {
  for (const Case& one : kCases) {
    SCOPED_TRACE(one.name);
    for (const float x : {one.format.maximum * 1.01F, 1e30F, INFINITY}) {
      EXPECT_EQ(float_to_8_bits(one.format, x), one.format.largest);
      EXPECT_EQ(float_to_8_bits(one.format, -x), one.format.largest | 0x80);
    }
    EXPECT_TRUE(std::isnan(float_from_8_bits(one.format, float_to_8_bits(one.format, NAN))));
    EXPECT_EQ(float_to_8_bits(one.format, 1e-30F), 0);
  }
}

}  // namespace
}  // namespace coda::tests::float8
