// SPDX-License-Identifier: Apache-2.0
// Evaluation predicts each token once, whatever windows and batches; generation goes on from the
// last tokens.
#include "coda/model_runner.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "coda/error.h"
#include "cpu/cpu_backend.h"
#include "train/tiny_model.h"

namespace coda {
namespace {

class Inference : public testing::Test {
 protected:
  // A runner with weights that are a function of the seed.
  std::unique_ptr<ModelRunner> make(ModelTask task, int64_t batch, int64_t sequence) {
    auto runner = std::make_unique<ModelRunner>(
        tiny_model(), ModelRunnerOptions{.task = task, .batch = batch, .sequence = sequence},
        *backend);
    if (weights.empty()) {
      weights = initial_weights(runner->model(), 3);
      for (WeightTensor& w : weights) {
        for (float& v : w.values) v *= 5;  // far from uniform predictions
      }
    }
    runner->bind(tensors_of(weights, *backend));
    return runner;
  }
  Evaluation run(const Tokens& text, int64_t batch, int64_t sequence, int64_t stride) {
    return evaluate(*make(ModelTask::losses, batch, sequence), text, stride);
  }

  std::unique_ptr<Backend> backend = cpu::make_cpu_backend({.threads = 1});
  Weights weights;
};

TEST_F(Inference, EveryTokenButTheFirstIsPredictedOnce) {
  const Tokens text = counting_text(60);
  for (int64_t size : {2, 16, 17, 18, 100}) {
    for (int64_t stride : {1, 5, 16}) {
      const Evaluation result = run(text.slice(0, size), 3, 16, stride);
      EXPECT_EQ(result.predicted, size - 1) << size << " tokens, stride " << stride;
    }
  }
}

TEST_F(Inference, TheLossDoesNotDependOnTheBatch) {
  const Tokens text = counting_text(60);
  const Evaluation one = run(text, 1, 16, 8);
  const Evaluation seven = run(text, 7, 16, 8);
  EXPECT_DOUBLE_EQ(one.total_loss, seven.total_loss);
}

TEST_F(Inference, AStrideOfOneSeesWhatAWindowBehindEachTokenSees) {
  const Tokens text = counting_text(10).slice(0, 12);
  const Evaluation sliding = run(text, 2, 8, 1);
  double expected = run(text.slice(0, 9), 1, 8, 8).total_loss;
  for (int64_t last = 9; last < 12; ++last) {
    const Tokens window = text.slice(last - 8, last + 1);
    auto runner = make(ModelTask::losses, 1, 8);
    evaluate(*runner, window, 8);
    expected += runner->row_losses()[7];
  }
  EXPECT_NEAR(sliding.total_loss, expected, 1e-5 * expected);
}

TEST_F(Inference, RefusesStridesThatSkipTokens) {
  const Tokens text = counting_text(60);
  EXPECT_THROW(run(text, 1, 16, 17), Error);
  EXPECT_THROW(run(text, 1, 16, 0), Error);
  EXPECT_THROW(run(text.slice(0, 1), 1, 16, 16), Error);
}

TEST_F(Inference, GenerationTakesTheLikeliestOfTheLastPositionAndLeavesTheOlderHalfOfAFullWindow) {
  constexpr int64_t kWindow = 8;
  auto runner = make(ModelTask::logits, 1, kWindow);
  std::vector<int32_t> text{'4', '1', ' '};
  std::vector<int32_t> made;
  generate(*runner, text, 12, {.temperature = 0}, [&](int32_t id) {
    made.push_back(id);
    return made.size() < 10;
  });
  ASSERT_EQ(made.size(), 10U);
  const std::vector<int32_t> targets(kWindow, kIgnoredTarget);
  for (int32_t id : made) {
    size_t first = 0;
    while (text.size() - first > kWindow) first += kWindow / 2;
    const size_t used = text.size() - first;
    std::vector<int32_t> window(text.begin() + static_cast<int64_t>(first), text.end());
    window.resize(kWindow, 7);  // what follows does not matter
    runner->forward(window, targets);
    const auto logits = runner->logits(static_cast<int64_t>(used) - 1);
    EXPECT_EQ(id, std::max_element(logits.begin(), logits.end()) - logits.begin());
    text.push_back(id);
  }
}

TEST_F(Inference, Bf16LogitsAreThoseOfFp32Rounded) {
  const std::vector<int32_t> ids{'1', '2', ' ', '1', '3', ' '};
  const std::vector<int32_t> targets(ids.size(), kIgnoredTarget);
  auto exact = make(ModelTask::logits, 1, 6);
  exact->forward(ids, targets);
  ModelRunner rounded(
      tiny_model(), {.task = ModelTask::logits, .storage = DType::bf16, .batch = 1, .sequence = 6},
      *backend);
  Weights copies = initial_weights(rounded.model(), 3);
  for (size_t i = 0; i < copies.size(); ++i) {
    copies[i].values = weights[i].values;
    copies[i].round();
  }
  rounded.bind(tensors_of(copies, *backend));
  rounded.forward(ids, targets);
  double difference = 0;
  double size = 0;
  for (int64_t row = 0; row < 6; ++row) {
    for (size_t c = 0; c < 256; ++c) {
      const double a = exact->logits(row)[c];
      difference += (rounded.logits(row)[c] - a) * (rounded.logits(row)[c] - a);
      size += a * a;
    }
  }
  EXPECT_GT(difference, 0);
  EXPECT_LT(difference, 0.03 * 0.03 * size);  // a few roundings of 2^-9 each
}

}  // namespace
}  // namespace coda
