// SPDX-License-Identifier: Apache-2.0
// The learning rate's shape: up in a line, down in half a cosine, and where it starts, turns and
// ends.
#include "coda/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "io/error_message.h"

namespace coda {
namespace {

using testing::HasSubstr;

TEST(Schedule, WarmsUpAndFallsToTheFloor) {
  const LearningSchedule schedule{
      .peak = 1.0, .floor = 0.1, .warmup_steps = 10, .total_steps = 110};
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 0), 0.1);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 4), 0.5);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 9), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 10), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 60), 0.55);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 35), 0.1 + 0.45 * (1 + std::sqrt(0.5)));
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 110), 0.1);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 100000), 0.1);
  for (int64_t step = 10; step < 110; ++step) {
    EXPECT_GT(learning_rate(schedule, step), learning_rate(schedule, step + 1));
  }
}

TEST(Schedule, WorksWithoutWarmUpAndWithNothingElse) {
  EXPECT_DOUBLE_EQ(learning_rate({1.0, 0.0, 0, 1}, 0), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate({1.0, 0.0, 5, 5}, 4), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate({1.0, 0.0, 5, 5}, 5), 0.0);
}

TEST(Schedule, RefusesWhatCannotBe) {
  const auto message = [](const LearningSchedule& schedule) {
    return error_message([&] { check_schedule(schedule); });
  };
  EXPECT_EQ(message({1e-3, 1e-4, 10, 100}), "");
  EXPECT_THAT(message({1e-3, 1e-2, 10, 100}), HasSubstr("floor"));
  EXPECT_THAT(message({1e-3, -1, 10, 100}), HasSubstr("floor"));
  EXPECT_THAT(message({std::nan(""), 0, 10, 100}), HasSubstr("peak"));
  EXPECT_THAT(message({1e-3, 1e-4, 101, 100}),
              HasSubstr("101 steps of warm-up do not fit into a run of 100 steps"));
}

}  // namespace
}  // namespace coda
