// SPDX-License-Identifier: Apache-2.0
// Every task is taken once, whatever the threads' speeds; a thread alone takes its own in order.
#include "cpu/task_ranges.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace coda::cpu {
namespace {

TEST(TaskRanges, EveryTaskIsTakenOnce) {
  for (int threads : {1, 2, 5}) {
    for (int64_t tasks : {0, 1, 3, 1000}) {
      TaskRanges ranges(tasks, threads);
      std::vector<std::atomic<int>> taken(static_cast<size_t>(tasks));
      std::vector<std::thread> workers;
      for (int t = 0; t < threads; ++t) {
        workers.emplace_back([&, t] {
          for (int64_t task = ranges.take(t); task >= 0; task = ranges.take(t)) {
            ++taken[static_cast<size_t>(task)];
          }
        });
      }
      for (std::thread& worker : workers) worker.join();
      for (const auto& count : taken) EXPECT_EQ(count, 1);
    }
  }
}

TEST(TaskRanges, OwnTasksComeInOrderThenTheBacksOfTheOthers) {
  TaskRanges ranges(6, 2);
  std::vector<int64_t> order;
  for (int64_t task = ranges.take(1); task >= 0; task = ranges.take(1)) order.push_back(task);
  EXPECT_EQ(order, (std::vector<int64_t>{3, 4, 5, 2, 1, 0}));
  EXPECT_EQ(ranges.take(0), -1);
}

}  // namespace
}  // namespace coda::cpu
