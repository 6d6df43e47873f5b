// SPDX-License-Identifier: Apache-2.0
// Operations of a training step, against a count of its products by hand.
#include <gtest/gtest.h>

#include "coda/models.h"

namespace coda {
namespace {

// Forward and backward are three products of each weight, of 2 operations an element and token.
// Attention has two products of [T, T] by the heads' columns forward and four backward, of which
// causality leaves half.
TEST(TrainingFlops, AreThoseOfTheProducts) {
  LlamaConfig llama;
  llama.layers = 3;
  llama.hidden = 64;
  llama.heads = 4;
  llama.kv_heads = 2;
  llama.head_dim = 8;
  llama.mlp = 96;
  llama.vocab = 500;
  constexpr double kSequence = 128;
  const double layer = 64 * (32 + 16 + 16) + 32 * 64 + 3 * 64 * 96;
  const double norms = 7 * 64;
  const double attention = 6 * 2 * kSequence / 2 * 32;
  const double expected = 6 * (3 * layer + 500 * 64 + norms) + 3 * attention;
  for (const bool tied : {false, true}) {
    llama.tied = tied;
    EXPECT_EQ(training_flops_of_token(llama, 128), expected);
  }

  // Two of five experts, in one layer of three.
  llama.experts = Experts{.count = 5, .chosen = 2, .mlp = 40, .layers = {false, true, false}};
  const double experts = 64 * 5 + 2 * 3 * 64 * 40;
  EXPECT_EQ(training_flops_of_token(llama, 128), expected + 6 * (experts - 3 * 64 * 96));

  Gpt2Config gpt2;
  gpt2.layers = 2;
  gpt2.hidden = 32;
  gpt2.heads = 2;
  gpt2.mlp = 128;
  gpt2.vocab = 300;
  gpt2.positions = 64;
  const double weights = 2 * (4 * 32 * 32 + 2 * 32 * 128) + 300 * 32;
  const double vectors = 2 * (4 * 32 + 128 + 32 + 4 * 32) + 2 * 32;  // biases and norms
  EXPECT_EQ(training_flops_of_token(gpt2, 64), 6 * (weights + vectors) + 2 * 6.0 * 2 * 64 / 2 * 32);
}

}  // namespace
}  // namespace coda
