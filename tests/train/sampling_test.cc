// SPDX-License-Identifier: Apache-2.0
#include "train/sampling.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>

#include "coda/error.h"

namespace coda {
namespace {

constexpr std::array<float, 4> kLogits{0.5F, 2, -1, 2};

TEST(PickToken, GreedyTakesTheLikeliestAndOfEqualOnesTheFirst) {
  for (uint64_t i = 0; i < 10; ++i) EXPECT_EQ(pick_token(kLogits, {.temperature = 0}, i), 1);
}

TEST(PickToken, FrequenciesAreTheSoftmaxAtTheTemperature) {
  constexpr int kDraws = 40000;
  for (double temperature : {0.5, 1.0, 2.0}) {
    std::array<int, 4> counts{};
    for (uint64_t i = 0; i < kDraws; ++i) {
      ++counts.at(static_cast<size_t>(pick_token(kLogits, {.temperature = temperature}, i)));
    }
    double total = 0;
    for (float l : kLogits) total += std::exp(l / temperature);
    for (size_t id = 0; id < 4; ++id) {
      const double p = std::exp(kLogits.at(id) / temperature) / total;
      EXPECT_NEAR(counts.at(id), kDraws * p, 5 * std::sqrt(kDraws * p)) << id;
    }
  }
}

TEST(PickToken, TopKNeverLeavesTheLikeliestK) {
  for (uint64_t i = 0; i < 1000; ++i) {
    const int32_t id = pick_token(kLogits, {.temperature = 5, .top_k = 2}, i);
    EXPECT_TRUE(id == 1 || id == 3);
  }
}

// Of softmax {0.118, 0.526, 0.026, 0.331} in the order 1, 3, 0, 2.
TEST(PickToken, TopPLeavesTheLikeliestThatHaveTheShare) {
  constexpr std::array<float, 4> kUneven{0.5F, 2, -1, 1.5375F};
  std::array<int, 4> counts{};
  for (uint64_t i = 0; i < 4000; ++i) {
    ++counts.at(static_cast<size_t>(pick_token(kUneven, {.temperature = 1, .top_p = 0.8}, i)));
    EXPECT_EQ(pick_token(kUneven, {.temperature = 1, .top_p = 0.5}, i), 1);
    EXPECT_EQ(pick_token(kUneven, {.temperature = 1, .top_p = 0}, i), 1);
  }
  EXPECT_EQ(counts[0] + counts[2], 0);
  const double p = 1 / (1 + std::exp(1.5375 - 2));
  EXPECT_NEAR(counts[1], 4000 * p, 5 * std::sqrt(4000 * p));
}

TEST(ContextStart, LeavesOutHalfAContextAtATime) {
  EXPECT_EQ(context_start(1, 8), 0U);
  EXPECT_EQ(context_start(8, 8), 0U);
  EXPECT_EQ(context_start(9, 8), 4U);
  EXPECT_EQ(context_start(12, 8), 4U);
  EXPECT_EQ(context_start(13, 8), 8U);
  EXPECT_EQ(context_start(5, 1), 4U);
}

TEST(PickToken, IsAFunctionOfSeedAndCounter) {
  int different = 0;
  for (uint64_t i = 0; i < 200; ++i) {
    const int32_t id = pick_token(kLogits, {.temperature = 2, .seed = 4}, i);
    EXPECT_EQ(id, pick_token(kLogits, {.temperature = 2, .seed = 4}, i));
    different += id != pick_token(kLogits, {.temperature = 2, .seed = 5}, i);
  }
  EXPECT_GT(different, 50);
}

TEST(PickToken, PassesOverWhatIsNotFinite) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const std::array<float, 3> some{kNan, 1, std::numeric_limits<float>::infinity()};
  const std::array<float, 2> none{kNan, kNan};
  EXPECT_EQ(pick_token(some, {}, 0), 1);
  EXPECT_THROW(pick_token(none, {}, 0), Error);
}

}  // namespace
}  // namespace coda
