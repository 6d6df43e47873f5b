// SPDX-License-Identifier: Apache-2.0
// Text a token at a time on a GPU, with keys and values kept in its memory: logits and tokens are
// those of the CPU. Needs a GPU; skipped elsewhere.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "coda/model_runner.h"
#include "cpu/cpu_backend.h"
#include "gpu/gpu_backend.h"
#include "on_gpu/on_gpu.h"
#include "train/tiny_model.h"

namespace coda::tests {
namespace {

constexpr int64_t kContext = 24;

class TextGeneratorOnGpu : public OnGpuWith<DType> {};

TEST_P(TextGeneratorOnGpu, WritesWhatTheCpuWrites) {
  const DType storage = GetParam();
  const auto cpu = cpu::make_cpu_backend({.threads = 2});
  const auto gpu = gpu::make_gpu_backend();
  LlamaConfig config = std::get<LlamaConfig>(tiny_model());
  config.window = 6;
  config.windowed.assign(static_cast<size_t>(config.layers), false);
  config.windowed[0] = true;
  Weights weights = initial_weights(*build_model(config, {.storage = storage, .positions = 1}), 3);
  for (WeightTensor& w : weights) {  // sharp distributions, so that a mistake changes a token
    if (!w.decays) continue;
    for (float& value : w.values) value *= 12;
    w.round();
  }
  const TensorMap on_cpu = tensors_of(weights, *cpu), on_gpu = tensors_of(weights, *gpu);
  TextGenerator theirs(config, storage, kContext, on_cpu, *cpu);
  TextGenerator ours(config, storage, kContext, on_gpu, *gpu);
  // Of one token, few, many, all that there is room for, and more: whatever was asked for before.
  for (const size_t length : {1, 3, 13, 24, 25, 41, 5}) {
    SCOPED_TRACE(length);
    std::vector<int32_t> tokens;
    for (size_t i = 0; i < length; ++i) tokens.push_back(static_cast<int32_t>(i * i * 7 % 256));
    const std::vector<float> expected = theirs.next_logits(tokens);
    const std::vector<float> logits = ours.next_logits(tokens);
    ASSERT_EQ(logits.size(), expected.size());
    double largest = 0;
    for (const float x : expected) largest = std::max(largest, std::abs(double{x}));
    const double tolerance = storage == DType::f32 ? 1e-5 : 3e-2;
    for (size_t i = 0; i < logits.size(); ++i)
      ASSERT_NEAR(logits[i], expected[i], tolerance * largest) << i;
    EXPECT_EQ(ours.next_logits(tokens), logits);
  }
  if (storage != DType::f32) return;
  std::vector<int32_t> written, expected;
  const SamplingOptions options{.temperature = 0.8, .seed = 5};
  ours.generate({7, 30, 4}, 50, options, [&](int32_t id) { return written.push_back(id), true; });
  theirs.generate({7, 30, 4}, 50, options,
                  [&](int32_t id) { return expected.push_back(id), true; });
  EXPECT_EQ(written, expected);
}

INSTANTIATE_TEST_SUITE_P(Types, TextGeneratorOnGpu, testing::Values(DType::f32, DType::bf16),
                         [](const auto& which) { return std::string(name_of(which.param)); });

}  // namespace
}  // namespace coda::tests
