// SPDX-License-Identifier: Apache-2.0
// Boundary cases of the RoPE scaling rules, which models of usual sizes seldom reach.
// parity_test.cc compares the rules with transformers.
#include "models/rope_angles.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace coda {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;
using testing::Pointwise;

LlamaConfig config_of(int64_t head_dim, double theta) {
  LlamaConfig config;
  config.hidden = head_dim * 2;
  config.heads = config.kv_heads = 2;
  config.head_dim = head_dim;
  config.rope_theta = theta;
  config.max_positions = 64;
  return config;
}

// A sequence as long as the original context uses the short factors; a longer one the long factors.
TEST(RopeAngles, LongropeIsShortUpToTheFirstContextInclusive) {
  LlamaConfig config = config_of(4, 16);
  config.rope_scaling = LongRopeScaling{.short_factors = {1, 2},
                                        .long_factors = {4, 8},
                                        .attention_factor = 1.25,
                                        .original_max_positions = 32};
  EXPECT_THAT(rope_angles(config, 31).steps, ElementsAre(1, 0.25 / 2));
  EXPECT_THAT(rope_angles(config, 32).steps, ElementsAre(1, 0.25 / 2));
  EXPECT_THAT(rope_angles(config, 33).steps, ElementsAre(0.25, 0.25 / 8));
  EXPECT_EQ(rope_angles(config, 32).factor, 1.25);
}

// The base grows only for sequences longer than max_positions.
TEST(RopeAngles, DynamicIsPlainUpToTheLongestPositionInclusive) {
  LlamaConfig config = config_of(8, 100);
  const std::vector<double> plain = rope_angles(config, 64).steps;
  config.rope_scaling = DynamicRopeScaling{2};
  EXPECT_EQ(rope_angles(config, 64).steps, plain);
  EXPECT_LT(rope_angles(config, 65).steps.back(), plain.back());
  EXPECT_EQ(rope_angles(config, 65).steps.front(), 1);
}

// YaRN's ramp ends at the pair that makes beta_slow turns over the original context. With a small
// base and a long context every pair makes more turns. The ramp then ends after the last pair, but
// no later than at the size of the head.
TEST(RopeAngles, YarnsRampMayEndBehindTheLastPair) {
  constexpr int64_t kHead = 16;
  for (const double context : {64.0, 4096.0, 1e6}) {
    LlamaConfig config = config_of(kHead, 100);
    config.rope_scaling = YarnRopeScaling{.factor = 4,
                                          .attention_factor = 1,
                                          .beta_fast = 32,
                                          .beta_slow = 1,
                                          .original_max_positions = static_cast<int64_t>(context)};
    const auto pair_of = [&](double turns) {
      return kHead * std::log(context / (turns * 2 * std::numbers::pi)) / (2 * std::log(100.0));
    };
    const double low = std::max(std::floor(pair_of(32)), 0.0);
    const double high = std::min(std::ceil(pair_of(1)), kHead - 1.0);
    EXPECT_EQ(high > kHead / 2, context > 64);  // long contexts end the ramp after the last pair
    std::vector<double> expected;
    for (int i = 0; i < kHead / 2; ++i) {
      const double stretched = std::clamp((i - low) / (high - low), 0.0, 1.0);
      expected.push_back(std::pow(100.0, -2.0 * i / kHead) * (1 - stretched + stretched / 4));
    }
    EXPECT_THAT(rope_angles(config, 64).steps, Pointwise(DoubleNear(1e-14), expected)) << context;
  }
}

}  // namespace
}  // namespace coda
