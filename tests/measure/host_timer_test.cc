// SPDX-License-Identifier: Apache-2.0
// How often candidates run when they are timed on the host: as many rounds as asked for, fewer
// where time runs out, and three at least.
#include "measure/host_timer.h"

#include <gtest/gtest.h>

namespace coda::measure {
namespace {

// Calls of each of two candidates that take no time.
std::vector<int> calls_with(const CpuTiming& options) {
  std::vector<int> calls(2);
  std::vector<Candidate> candidates;
  for (int& count : calls) candidates.push_back({"", [&count](unsigned) { ++count; }});
  time_on_host({&candidates[0], &candidates[1]}, options);
  for (const Candidate& candidate : candidates)
    EXPECT_LE(candidate.interleaved.low_ms, candidate.interleaved.median_ms);
  return calls;
}

TEST(HostTimer, RunsTwiceAndThenOnceARound) {
  EXPECT_EQ(calls_with({.rounds = 7, .round_ms = 0}), (std::vector<int>{9, 9}));
}

TEST(HostTimer, BeginsNoFurtherRoundWhenTimeIsUpButForThree) {
  EXPECT_EQ(calls_with({.rounds = 1000, .round_ms = 0, .most_seconds = 0}),
            (std::vector<int>{5, 5}));
  EXPECT_EQ(calls_with({.rounds = 2, .round_ms = 0, .most_seconds = 0}), (std::vector<int>{4, 4}));
}

}  // namespace
}  // namespace coda::measure
