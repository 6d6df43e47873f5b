// SPDX-License-Identifier: Apache-2.0
#include "train/batches.h"

#include <gtest/gtest.h>

#include <numeric>
#include <set>
#include <vector>

#include "coda/error.h"

namespace coda::train {
namespace {

std::vector<int32_t> counting(size_t count) {
  std::vector<int32_t> tokens(count);
  std::iota(tokens.begin(), tokens.end(), 0);
  return tokens;
}

TEST(BatchSampler, AnEpochVisitsDisjointWindowsOnce) {
  for (size_t count : {17, 33, 100, 1000, 4097}) {
    const auto tokens = counting(count);
    const BatchSampler sampler(tokens, 16, 3);
    SCOPED_TRACE(count);
    for (uint64_t epoch = 0; epoch < 3; ++epoch) {
      std::set<uint64_t> starts;
      for (uint64_t i = 0; i < sampler.samples_per_epoch(); ++i) {
        starts.insert(sampler.start_of(epoch * sampler.samples_per_epoch() + i));
      }
      EXPECT_EQ(starts.size(), sampler.samples_per_epoch());
      EXPECT_LE(*starts.rbegin() + 16, count - 1);
      for (uint64_t start : starts) EXPECT_EQ((start - *starts.begin()) % 16, 0u);
    }
  }
}

TEST(BatchSampler, EpochsDifferInOrderAndOffset) {
  const auto tokens = counting(5000);
  const BatchSampler sampler(tokens, 16, 3);
  const uint64_t epoch = sampler.samples_per_epoch();
  EXPECT_NE(sampler.start_of(0) % 16, sampler.start_of(epoch) % 16);
  int same_order = 0;
  for (uint64_t i = 0; i < epoch; ++i) {
    same_order += sampler.start_of(i) / 16 == sampler.start_of(i + epoch) / 16;
  }
  EXPECT_LT(same_order, 20);
}

TEST(BatchSampler, TargetsAreTheNextTokensAndSamplesDependOnNothingButTheirIndex) {
  const auto tokens = counting(500);
  const BatchSampler one(tokens, 8, 5);
  const BatchSampler other(tokens, 8, 6);
  std::vector<int32_t> ids(8), targets(8), again(8), ignored(8);
  one.sample(1234, ids, targets);
  for (size_t i = 0; i < 8; ++i) EXPECT_EQ(targets[i], ids[i] + 1);
  one.sample(7, again, ignored);
  one.sample(1234, again, ignored);
  EXPECT_EQ(ids, again);
  int equal = 0;
  for (uint64_t i = 0; i < 50; ++i) equal += one.start_of(i) == other.start_of(i);
  EXPECT_LT(equal, 5);
}

TEST(BatchSampler, RefusesATextShorterThanASequence) {
  const auto tokens = counting(16);
  EXPECT_THROW(BatchSampler(tokens, 16, 0), Error);
  EXPECT_NO_THROW(BatchSampler(tokens, 15, 0));
}

}  // namespace
}  // namespace coda::train
