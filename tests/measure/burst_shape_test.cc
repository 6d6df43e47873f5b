// SPDX-License-Identifier: Apache-2.0
// The shape of a burst: long enough, no longer than the regime asks for by more than a graph, and
// through all sets equally often.
#include "measure/burst_shape.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>

namespace coda::measure {
namespace {

TEST(BurstShape, WithoutSetsCallsAreLaunchedOneByOne) {
  const BurstShape shape = burst_shape(2, 0.016, 0);
  EXPECT_EQ(shape.calls, 125);
  EXPECT_EQ(shape.captured, 0);
}

TEST(BurstShape, WhatIsLongerThanTheBurstRunsOnce) {
  const BurstShape shape = burst_shape(2, 25, 0);
  EXPECT_EQ(shape.calls, 1);
  EXPECT_EQ(shape.captured, 0);
}

TEST(BurstShape, ARoundOfMoreCallsThanTheBurstIsNotCaptured) {
  const BurstShape three = burst_shape(2, 0.8, 3);  // 2.5 calls are rounded up
  EXPECT_EQ(three.calls, 3);
  EXPECT_EQ(three.captured, 3);
  const BurstShape two = burst_shape(2, 1.2, 3);
  EXPECT_EQ(two.calls, 2);
  EXPECT_EQ(two.captured, 0);
}

TEST(BurstShape, AWholePlanIsAGraphOfOneCall) {
  const BurstShape shape = burst_shape(2, 8, 1);
  EXPECT_EQ(shape.calls, 1);
  EXPECT_EQ(shape.captured, 1);
}

TEST(BurstShape, ATimeThatWasReadAsNothingEndsAllTheSame) {
  EXPECT_EQ(burst_shape(20, 0, 0).calls, 20000);
  EXPECT_LE(burst_shape(20, 0, 3).calls, 20000);
}

TEST(BurstShape, GoesThroughAllSetsEquallyOftenForAboutTheTimeAsked) {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> exponent(-2.5, 1.5);
  std::uniform_int_distribution<unsigned> any_sets(1, 48);
  for (int i = 0; i < 2000; ++i) {
    const double call_ms = std::pow(10, exponent(random));
    const unsigned sets = any_sets(random);
    const double ms = i % 2 == 0 ? 2 : 20;
    const BurstShape shape = burst_shape(ms, call_ms, sets);
    SCOPED_TRACE("call " + std::to_string(call_ms) + " ms, sets " + std::to_string(sets));
    if (shape.captured == 0) {
      EXPECT_LT(shape.calls, static_cast<int>(sets));
    } else {
      EXPECT_EQ(shape.captured % static_cast<int>(sets), 0);
      EXPECT_EQ(shape.calls % shape.captured, 0);
    }
    // Half a graph more or less, and half a call.
    const double graph_ms = std::max(shape.captured, 1) * call_ms;
    EXPECT_LE(std::abs(shape.calls * call_ms - ms), graph_ms / 2 + call_ms / 2 + 1e-9)
        << shape.calls << " calls";
  }
}

}  // namespace
}  // namespace coda::measure
