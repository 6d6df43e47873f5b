// SPDX-License-Identifier: Apache-2.0
// What a figure is made of: medians and percentiles of samples, only the regimes that were measured
// in JSON and in ratios, and random tensors that are as they say.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/stored_element.h"
#include "measure/candidate.h"
#include "measure/random_fill.h"

namespace coda::measure {
namespace {

TEST(Spread, IsTheMedianAndTheTenthAndNinetiethPercentile) {
  std::vector<double> samples;
  for (int i = 100; i >= 0; --i) samples.push_back(i);
  const Spread times = spread(samples);
  EXPECT_EQ(times.median_ms, 50);
  EXPECT_EQ(times.low_ms, 10);
  EXPECT_EQ(times.high_ms, 90);
  EXPECT_EQ(spread({3.0}).low_ms, 3);
  EXPECT_EQ(spread({}).median_ms, 0);
}

TEST(TimedAsJson, HasTheRegimesThatWereMeasured) {
  Timed candidate;
  candidate.name = "plan";
  candidate.cool = {.median_ms = 2, .low_ms = 1, .high_ms = 4};
  const auto json = nlohmann::ordered_json::parse(json_text(candidate));
  EXPECT_EQ(json["candidate"], "plan");
  EXPECT_EQ(json["cool_ms"], 2);
  EXPECT_EQ(json["cool_low_ms"], 1);
  EXPECT_EQ(json["cool_high_ms"], 4);
  for (const char* key : {"sustained_ms", "interleaved_ms", "sustained_mhz", "watts"})
    EXPECT_FALSE(json.contains(key)) << key;
  candidate.sustained.median_ms = 3;
  candidate.sustained.mhz = 1500;
  candidate.watts = 690;
  const auto hot = nlohmann::ordered_json::parse(json_text(candidate));
  EXPECT_EQ(hot["sustained_ms"], 3);
  EXPECT_EQ(hot["sustained_mhz"], 1500);
  EXPECT_EQ(hot["watts"], 690);
}

class RandomTensors : public ::testing::TestWithParam<DType> {};

TEST_P(RandomTensors, HaveMeanZeroAndTheDeviationAskedForAndLeaveGapsAlone) {
  constexpr int64_t kRows = 100;
  constexpr int64_t kCols = 200;
  constexpr int64_t kStride = 204;
  std::vector<double> memory(kRows * kStride, -77);
  TensorView view{memory.data(), GetParam(), kRows, kCols, kStride};
  std::vector<double> before;
  for (int64_t i = 0; i < kRows * kStride; ++i)
    before.push_back(read_element(view.dtype, view.data, i));
  fill_random_on_host(view, 5, 0.5F);
  double sum = 0;
  double squares = 0;
  for (int64_t i = 0; i < kRows * kStride; ++i) {
    const double x = read_element(view.dtype, view.data, i);
    if (i % kStride >= kCols) {
      const double former = before[static_cast<size_t>(i)];
      EXPECT_TRUE(x == former || (std::isnan(x) && std::isnan(former)));
      continue;
    }
    sum += x;
    squares += x * x;
  }
  constexpr double kCount = kRows * kCols;
  EXPECT_NEAR(sum / kCount, 0, 4 * 0.5 / std::sqrt(kCount));
  EXPECT_NEAR(std::sqrt(squares / kCount), 0.5, 0.01);
}

INSTANTIATE_TEST_SUITE_P(Types, RandomTensors,
                         ::testing::Values(DType::f32, DType::bf16, DType::f16, DType::f64),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST(RandomNumbers, AreBelowTheirLimitAndReachIt) {
  std::vector<int32_t> numbers(1000);
  fill_random_on_host(dense_view(numbers.data(), DType::i32, 1000, 1), 1, 1.0F, 7);
  std::vector<int> counts(7);
  for (const int32_t n : numbers) {
    ASSERT_GE(n, 0);
    ASSERT_LT(n, 7);
    ++counts[static_cast<size_t>(n)];
  }
  for (const int count : counts) EXPECT_GT(count, 0);
}

}  // namespace
}  // namespace coda::measure
