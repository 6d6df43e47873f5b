// SPDX-License-Identifier: Apache-2.0
// Batches are a pure function of (seed, step, row), cover the data evenly, and pair each token with
// its next one.
#include "io/batches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <set>

#include "base/rounding.h"
#include "coda/models.h"

namespace coda::io {
namespace {

using testing::ElementsAre;

// Ids 0, 1, ..., count - 1, so that an id says where it was read.
Tokens counting(int64_t count) {
  auto ids = std::make_shared<std::vector<uint32_t>>(static_cast<size_t>(count));
  std::iota(ids->begin(), ids->end(), 0u);
  Tokens tokens;
  tokens.source = "counting";
  tokens.bytes = std::as_bytes(std::span(*ids));
  tokens.owner = ids;
  tokens.width = 4;
  return tokens;
}

struct Batch {
  std::vector<int32_t> inputs;
  std::vector<int32_t> targets;
};

Batch sample(const Tokens& tokens, uint64_t seed, int64_t step, int64_t first_row, int64_t rows,
             int64_t sequence) {
  Batch batch{std::vector<int32_t>(static_cast<size_t>(rows * sequence)),
              std::vector<int32_t>(static_cast<size_t>(rows * sequence))};
  sample_batch(tokens, seed, step, first_row, sequence, batch.inputs, batch.targets);
  return batch;
}

TEST(SampleBatch, TargetsAreTheNextTokens) {
  const Batch batch = sample(counting(1000), 1, 2, 0, 50, 16);
  for (size_t i = 0; i < batch.inputs.size(); ++i) {
    EXPECT_EQ(batch.targets[i], batch.inputs[i] + 1);
    if (i % 16 != 0) {
      EXPECT_EQ(batch.inputs[i], batch.inputs[i - 1] + 1);
    }
  }
}

TEST(SampleBatch, RowsDoNotDependOnHowAStepIsSplit) {
  const Tokens tokens = counting(1000);
  const Batch whole = sample(tokens, 3, 17, 0, 8, 10);
  const Batch first = sample(tokens, 3, 17, 0, 5, 10);
  const Batch rest = sample(tokens, 3, 17, 5, 3, 10);
  std::vector<int32_t> joined = first.inputs;
  joined.insert(joined.end(), rest.inputs.begin(), rest.inputs.end());
  EXPECT_EQ(joined, whole.inputs);
}

TEST(SampleBatch, SeedStepAndRowAllMatter) {
  std::set<int64_t> starts;
  for (uint64_t seed = 0; seed < 10; ++seed) {
    for (int64_t step = 0; step < 10; ++step) {
      for (int64_t row = 0; row < 10; ++row) {
        starts.insert(sample_start(seed, step, row, int64_t{1} << 62));
      }
    }
  }
  EXPECT_EQ(starts.size(), 1000u);
}

// A checkpoint's seed and step must mean the same data in every later version.
TEST(SampleBatch, StartsArePinned) {
  EXPECT_THAT((std::vector<int64_t>{sample_start(0, 0, 0, 1000000), sample_start(0, 0, 1, 1000000),
                                    sample_start(0, 1, 0, 1000000), sample_start(1, 0, 0, 1000000),
                                    sample_start(UINT64_MAX, 123456, 31, 1000000)}),
              ElementsAre(138709, 184366, 269130, 693512, 365055));
}

TEST(SampleBatch, StartsAreUniform) {
  constexpr int64_t kStarts = 7;
  constexpr int64_t kDraws = 70000;
  std::vector<int64_t> counts(kStarts);
  for (int64_t step = 0; step < kDraws / 10; ++step) {
    for (int64_t row = 0; row < 10; ++row) ++counts[sample_start(5, step, row, kStarts)];
  }
  const double mean = double{kDraws} / kStarts;
  for (const int64_t count : counts) {
    EXPECT_LT(std::abs(static_cast<double>(count) - mean), 5 * std::sqrt(mean));
  }
}

TEST(SampleBatch, ReachesTheFirstAndTheLastSequence) {
  const Tokens tokens = counting(5);
  std::set<int32_t> firsts;
  for (int64_t step = 0; step < 50; ++step) {
    const Batch batch = sample(tokens, 1, step, 0, 1, 3);
    firsts.insert(batch.inputs[0]);
    EXPECT_LE(batch.targets[2], 4);
  }
  EXPECT_THAT(firsts, ElementsAre(0, 1));
}

TEST(ReadWindows, EveryTokenButTheFirstIsATargetOnce) {
  constexpr int64_t kSequence = 4;
  for (int64_t count = 1; count < 20; ++count) {
    const Tokens tokens = counting(count);
    std::vector<int32_t> targets;
    for (int64_t window = 0; window < ceil_div(count - 1, kSequence); ++window) {
      std::vector<int32_t> in(kSequence);
      std::vector<int32_t> out(kSequence);
      read_windows(tokens, window, kSequence, in, out);
      for (size_t i = 0; i < in.size(); ++i) {
        if (out[i] == kIgnoredTarget) continue;
        EXPECT_EQ(out[i], in[i] + 1);
        targets.push_back(out[i]);
      }
    }
    std::vector<int32_t> expected(static_cast<size_t>(count - 1));
    std::iota(expected.begin(), expected.end(), 1);
    EXPECT_EQ(targets, expected) << count << " tokens";
  }
}

TEST(ReadWindows, ABatchIsPaddedBeyondTheEnd) {
  std::vector<int32_t> in(9);
  std::vector<int32_t> out(9);
  read_windows(counting(6), 1, 3, in, out);
  EXPECT_THAT(in, ElementsAre(3, 4, 0, 0, 0, 0, 0, 0, 0));
  EXPECT_THAT(out, ElementsAre(4, 5, -100, -100, -100, -100, -100, -100, -100));
}

}  // namespace
}  // namespace coda::io
