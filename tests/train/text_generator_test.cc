// SPDX-License-Identifier: Apache-2.0
// A generator that keeps keys and values gives the logits and the tokens of the runner that runs
// the whole context through the forward plan for each token.
#include <gtest/gtest.h>

#include <cmath>

#include "base/relative_error.h"
#include "coda/backend.h"
#include "coda/error.h"
#include "coda/model_runner.h"
#include "cpu/cpu_backend.h"
#include "train/sampling.h"
#include "train/tiny_model.h"

namespace coda {
namespace {

constexpr int64_t kContext = 24;

ModelConfig gpt2() {
  return Gpt2Config{
      .layers = 2, .hidden = 32, .heads = 4, .vocab = 256, .positions = 64, .mlp = 64};
}

ModelConfig gpt_neox() {
  return GptNeoxConfig{.layers = 2,
                       .hidden = 32,
                       .heads = 4,
                       .mlp = 64,
                       .vocab = 256,
                       .max_positions = 64,
                       .rotary_dim = 4};
}

// Windows, soft caps, and layers without RoPE, which the kept keys must follow.
ModelConfig with_windows() {
  LlamaConfig config = std::get<LlamaConfig>(tiny_model());
  config.qkv_bias = config.joined = true;
  config.query_key_norm = QueryKeyNorm::head;
  config.norms = NormPlace::both;
  config.score_cap = 5;
  config.window = 6;
  config.windowed.assign(static_cast<size_t>(config.layers), false);
  config.windowed[0] = true;
  config.rotated = config.windowed;
  return config;
}

ModelConfig with_experts() {
  LlamaConfig config = std::get<LlamaConfig>(tiny_model());
  config.experts = Experts{.count = 4, .chosen = 2, .mlp = 24, .normalised = true};
  return config;
}

// Weights that make sharp distributions, so that a mistake changes a token.
Weights sharp_weights(const ModelConfig& config, DType storage) {
  Weights weights = initial_weights(*build_model(config, {.storage = storage, .positions = 1}), 3);
  for (WeightTensor& w : weights) {
    if (!w.decays) continue;
    for (float& value : w.values) value *= 12;
    w.round();
  }
  return weights;
}

class Models : public testing::Test {
 protected:
  void check(const ModelConfig& config, DType storage, double tolerance) {
    Weights weights = sharp_weights(config, storage);
    const TensorMap tensors = tensors_of(weights, *backend);
    ModelRunner runner(
        config, {.task = ModelTask::logits, .storage = storage, .sequence = kContext}, *backend);
    runner.bind(tensors);
    TextGenerator generator(config, storage, kContext, tensors, *backend);
    // Of one token, few, many, all that there is room for, and more: whatever was asked for before.
    for (const size_t length : {1, 3, 13, 24, 25, 41, 5}) {
      SCOPED_TRACE(length);
      std::vector<int32_t> tokens;
      for (size_t i = 0; i < length; ++i) tokens.push_back(static_cast<int32_t>(i * i * 7 % 256));
      const size_t start = context_start(length, kContext);
      std::vector<int32_t> window(kContext, 0);
      std::copy(tokens.begin() + static_cast<int64_t>(start), tokens.end(), window.begin());
      runner.forward(window, std::vector<int32_t>(kContext, kIgnoredTarget));
      const std::vector<float> expected = runner.logits(static_cast<int64_t>(length - start) - 1);
      const std::vector<float> logits = generator.next_logits(tokens);
      ASSERT_EQ(logits.size(), expected.size());
      double largest = 0;
      for (const float x : expected) largest = std::max(largest, std::abs(double{x}));
      for (size_t i = 0; i < logits.size(); ++i)
        ASSERT_NEAR(logits[i], expected[i], tolerance * largest) << i;
    }
    if (storage != DType::f32) return;
    for (const double temperature : {0.0, 0.8}) {
      const SamplingOptions options{.temperature = temperature, .seed = 5};
      std::vector<int32_t> ours, theirs;
      generator.generate({7, 30, 4}, 50, options,
                         [&](int32_t id) { return ours.push_back(id), true; });
      generate(runner, {7, 30, 4}, 50, options,
               [&](int32_t id) { return theirs.push_back(id), true; });
      EXPECT_EQ(ours, theirs);
    }
  }

  std::unique_ptr<Backend> backend = cpu::make_cpu_backend({.threads = 2});
};

TEST_F(Models, OfLlamaGenerateWithKeptKeysAndValuesAsWithout) {
  check(tiny_model(), DType::f32, 1e-5);
  check(tiny_model(), DType::bf16, 3e-2);
}

TEST_F(Models, OfGpt2GenerateWithKeptKeysAndValuesAsWithout) {
  check(gpt2(), DType::f32, 1e-5);
  check(gpt2(), DType::bf16, 3e-2);
}

TEST_F(Models, OfGptNeoxGenerateWithKeptKeysAndValuesAsWithout) {
  check(gpt_neox(), DType::f32, 1e-5);
}

TEST_F(Models, WithExpertsGenerateWithKeptKeysAndValuesAsWithout) {
  check(with_experts(), DType::f32, 1e-5);
}

TEST_F(Models, OfTheFamilyGenerateWithKeptKeysAndValuesAsWithout) {
  check(with_windows(), DType::f32, 1e-5);
}

// As transformers has it, a text is read with the angles of its length: those of longer ones begin
// where it grows beyond, and the tokens before are read again.
TEST_F(Models, WithRopeOfTheLengthAtHandReadTheTextAnewWhereItsAnglesChange) {
  LlamaConfig config = std::get<LlamaConfig>(tiny_model());
  config.max_positions = 24;
  const auto pairs = static_cast<size_t>(config.head_dim / 2);
  const RopeScaling types[] = {LongRopeScaling{.short_factors = std::vector<double>(pairs, 1),
                                               .long_factors = std::vector<double>(pairs, 6),
                                               .original_max_positions = 16},
                               DynamicRopeScaling{.factor = 2}};
  for (const RopeScaling& type : types) {
    config.rope_scaling = type;
    const int64_t longest = longest_sequence_of(config);
    Weights weights = sharp_weights(config, DType::f32);
    TextGenerator generator(config, DType::f32, longest, tensors_of(weights, *backend), *backend);
    std::vector<int32_t> text;
    const auto expect_logits_of_the_text = [&] {
      ModelRunner runner(config, {.task = ModelTask::logits, .sequence = std::ssize(text)},
                         *backend);
      runner.bind(tensors_of(weights, *backend));
      runner.forward(text, {});
      const std::vector<float> found = generator.next_logits(text);
      const std::vector<float> expected = runner.logits(std::ssize(text) - 1);
      EXPECT_LT(relative_error(std::vector<double>(found.begin(), found.end()),
                               std::vector<double>(expected.begin(), expected.end())),
                1e-5)
          << text.size() << " tokens";
    };
    while (std::ssize(text) < longest - 1) {
      text.push_back(static_cast<int32_t>(text.size() * 37 % 256));
      if (text.size() % 5 == 0 || text.size() >= 14) expect_logits_of_the_text();
    }
    text.resize(12);  // and back
    expect_logits_of_the_text();
  }
}

TEST_F(Models, RefuseAContextThatIsTooLongAndTokensThatAreNone) {
  Weights weights = sharp_weights(tiny_model(), DType::f32);
  const TensorMap tensors = tensors_of(weights, *backend);
  EXPECT_THROW(TextGenerator(tiny_model(), DType::f32, 65, tensors, *backend), Error);
  TextGenerator generator(tiny_model(), DType::f32, 8, tensors, *backend);
  EXPECT_THROW(generator.next_logits({}), Error);
  EXPECT_THROW(generator.next_logits(std::vector<int32_t>{256}), Error);
}

}  // namespace
}  // namespace coda
