// SPDX-License-Identifier: Apache-2.0
// Sparse experts on a GPU: lists, gathered rows and their sums within a whole training step are
// those of the CPU, tokens without room are counted, and bits are the same each time. Needs a GPU;
// skipped elsewhere.
#include <gtest/gtest.h>

#include "base/relative_error.h"
#include "coda/model_runner.h"
#include "cpu/cpu_backend.h"
#include "gpu/gpu_backend.h"
#include "on_gpu/on_gpu.h"
#include "train/tiny_model.h"

namespace coda::tests {
namespace {

class SparseExpertsOnGpu : public OnGpuWith<DType> {};

ModelTrainSettings settings_of_experts(DType storage, double capacity) {
  ModelTrainSettings settings = tiny_settings();
  std::get<LlamaConfig>(settings.model).experts =
      Experts{.count = 4, .chosen = 2, .mlp = 40, .normalised = true};
  settings.storage = storage;
  settings.batch = 16;
  settings.expert_capacity = capacity;
  return settings;
}

// Of a batch of the text: the loss, the gradients, and what was dropped.
struct ExpertStep {
  double loss = 0;
  int64_t dropped = 0;
  std::vector<std::vector<float>> gradients;

  ExpertStep(const ModelTrainSettings& s, const Weights& weights, Backend& backend) {
    ModelRunner runner(s.model,
                       {.task = ModelTask::gradients,
                        .storage = s.storage,
                        .batch = s.batch,
                        .sequence = s.sequence,
                        .expert_capacity = s.expert_capacity},
                       backend);
    Weights own = weights;
    const TensorMap tensors = tensors_of(own, backend);
    runner.bind(tensors);
    std::vector<int32_t> ids, targets;
    for (int64_t i = 0; i < s.batch * s.sequence; ++i) {
      ids.push_back(static_cast<int32_t>(i * i % 251));
      targets.push_back(static_cast<int32_t>(i * 7 % 256));
    }
    runner.forward(ids, targets);
    loss = runner.loss();
    dropped = runner.dropped();
    runner.backward(1);
    for (size_t i = 0; i < weights.size(); ++i) gradients.push_back(runner.gradient(i));
  }
};

// Routing is a jump: in 16 bits a token near the border may go to another expert than on the CPU.
// So all is compared in fp32, and in 16 bits the loss.
TEST_P(SparseExpertsOnGpu, AStepIsThatOfTheCpu) {
  const auto cpu = cpu::make_cpu_backend({});
  const auto gpu = gpu::make_gpu_backend();
  for (const double capacity : {2.0, 0.3}) {
    const ModelTrainSettings settings = settings_of_experts(GetParam(), capacity);
    const Weights weights =
        initial_weights(*build_model(settings.model, {.storage = GetParam(), .positions = 1}), 3);
    const ExpertStep expected(settings, weights, *cpu), step(settings, weights, *gpu);
    const bool is_exact = GetParam() == DType::f32;
    EXPECT_NEAR(step.loss, expected.loss, (is_exact ? 1e-5 : 2e-2) * expected.loss);
    EXPECT_EQ(step.dropped > 0, capacity < 2);
    if (!is_exact) continue;
    EXPECT_EQ(step.dropped, expected.dropped);
    for (size_t i = 0; i < weights.size(); ++i) {
      const std::vector<double> theirs(expected.gradients[i].begin(), expected.gradients[i].end());
      const std::vector<double> ours(step.gradients[i].begin(), step.gradients[i].end());
      EXPECT_LT(relative_error(ours, theirs), 1e-3) << weights[i].name;
    }
  }
}

TEST_P(SparseExpertsOnGpu, TrainingLearnsAndHasTheSameBitsEachTime) {
  const auto gpu = gpu::make_gpu_backend();
  const ModelTrainSettings settings = settings_of_experts(GetParam(), 1.25);
  const Tokens text = counting_text(500);
  ModelTrainer a(settings, text, *gpu), b(settings, text, *gpu);
  double first = 0, last = 0;
  for (int i = 0; i < 40; ++i) {
    last = a.step().loss;
    EXPECT_EQ(b.step().loss, last) << "step " << i + 1;
    if (i == 0) first = last;
  }
  EXPECT_LT(last, 0.7 * first);
  EXPECT_EQ(a.dropped(), b.dropped());
}

INSTANTIATE_TEST_SUITE_P(Types, SparseExpertsOnGpu, testing::Values(DType::f32, DType::bf16));

}  // namespace
}  // namespace coda::tests
