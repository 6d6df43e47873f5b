// SPDX-License-Identifier: Apache-2.0
// What one more number of a normal sample exceeds once in 10,000 times.
#include "base/prediction.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace coda {
namespace {

// The intervals' formula with t from tables: t(1 - 1e-4) of 7 degrees of freedom is 7.063.
TEST(Prediction, IsStudentsInterval) {
  const std::vector<double> sample{1, 2, 3, 4, 5, 6, 7, 8};
  const double deviation = std::sqrt(6.0);
  EXPECT_NEAR(prediction_limit(sample), 4.5 + 7.063 * deviation * std::sqrt(1 + 1 / 8.0), 0.3);
  EXPECT_DOUBLE_EQ(prediction_limit(std::vector<double>(8, 3.0)), 3);
}

TEST(Prediction, OneMoreExceedsItOnceInTenThousandTimes) {
  std::mt19937_64 random(1);
  std::normal_distribution<double> normal(3, 2);
  constexpr int kTrials = 200000;
  int beyond = 0;
  for (int trial = 0; trial < kTrials; ++trial) {
    std::vector<double> sample(16);
    for (double& x : sample) x = normal(random);
    beyond += normal(random) > prediction_limit(sample);
  }
  EXPECT_GT(beyond, 5);
  EXPECT_LT(beyond, 45);  // 20, and six of its deviations
}

}  // namespace
}  // namespace coda
