// SPDX-License-Identifier: Apache-2.0
// parallel_for: every job is done once, and of several failures the first in the jobs' order is
// thrown, whichever thread was faster, so that a user sees the same message in every run.
#include "gpu/jit/parallel_for.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace coda::gpu {
namespace {

TEST(ParallelFor, DoesEveryJobOnce) {
  for (const unsigned threads : {0U, 1U, 3U}) {
    std::vector<std::atomic<int>> done(17);
    parallel_for(done.size(), threads, [&](size_t i) { ++done[i]; });
    for (size_t i = 0; i < done.size(); ++i) EXPECT_EQ(done[i], 1) << i;
  }
}

TEST(ParallelFor, ThrowsTheFailureThatIsFirstInOrder) {
  std::atomic<bool> second_has_failed = false;
  std::string message;
  try {
    parallel_for(2, 2, [&](size_t i) {
      if (i == 0) {
        for (int ms = 0; ms < 10000 && !second_has_failed; ++ms)
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
      } else {
        second_has_failed = true;
      }
      throw std::runtime_error("job " + std::to_string(i));
    });
  } catch (const std::runtime_error& error) {
    message = error.what();
  }
  EXPECT_TRUE(second_has_failed);
  EXPECT_EQ(message, "job 0");
}

TEST(ParallelFor, LeavesOutWhatHasNotStartedWhenAJobFails) {
  int started = 0;
  EXPECT_THROW(parallel_for(5, 1,
                            [&](size_t i) {
                              ++started;
                              if (i == 1) throw std::runtime_error("job 1");
                            }),
               std::runtime_error);
  EXPECT_EQ(started, 2);
}

}  // namespace
}  // namespace coda::gpu
