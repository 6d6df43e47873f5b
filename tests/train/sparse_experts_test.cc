// SPDX-License-Identifier: Apache-2.0
// Training a model with sparse experts on the CPU: it learns; with rows for all tokens it has the
// trajectory of dense experts; its bits depend neither on threads nor on interruptions.
#include <gtest/gtest.h>

#include <cmath>

#include "coda/error.h"
#include "cpu/cpu_backend.h"
#include "train/tiny_model.h"

namespace coda {
namespace {

// 384 tokens, of which an expert has 192 if all have as many.
ModelTrainSettings settings_with_experts(double capacity) {
  ModelTrainSettings settings = tiny_settings();
  std::get<LlamaConfig>(settings.model).experts =
      Experts{.count = 4, .chosen = 2, .mlp = 32, .normalised = true};
  settings.batch = 16;
  settings.expert_capacity = capacity;
  return settings;
}

TEST(TrainingSparseExperts, HasTheTrajectoryOfDenseOnesWhereThereIsRoomForAll) {
  const Tokens text = counting_text(500);
  const auto backend = cpu::make_cpu_backend({.threads = 1});
  ModelTrainer dense(settings_with_experts(0), text, *backend);
  ModelTrainer sparse(settings_with_experts(2), text, *backend);
  for (int i = 0; i < 10; ++i) {
    const double expected = dense.step().loss;
    EXPECT_NEAR(sparse.step().loss, expected, 2e-3 * expected) << "step " << i + 1;
    EXPECT_EQ(sparse.dropped(), 0);
  }
  EXPECT_EQ(dense.dropped(), 0);
}

TEST(TrainingSparseExperts, LearnsWithTooFewRowsToo) {
  const Tokens text = counting_text(500);
  const auto backend = cpu::make_cpu_backend({.threads = 1});
  for (const auto& [storage, again] :
       {std::pair(DType::f32, false), {DType::f32, true}, {DType::bf16, false}}) {
    ModelTrainSettings settings = settings_with_experts(0.3);  // 64 rows of each
    settings.storage = storage;
    settings.recomputed_layers = again ? kAllLayers : 0;
    ModelTrainer trainer(settings, text, *backend);
    EXPECT_NEAR(trainer.step().loss, std::log(256), 0.3);
    // Of 2 layers, 384 tokens and 2 choices at most 2 * 4 * 64 find a row.
    EXPECT_GE(trainer.dropped(), 2 * 384 * 2 - 2 * 4 * 64);
    double last = 0;
    for (int i = 0; i < 40; ++i) last = trainer.step().loss;
    EXPECT_LT(last, 0.7 * std::log(256));
  }
}

TEST(TrainingSparseExperts, HasTheSameBitsForAnyThreadsAndFromARestoredState) {
  const Tokens text = counting_text(500);
  const auto one = cpu::make_cpu_backend({.threads = 1});
  const auto three = cpu::make_cpu_backend({.threads = 3});
  for (const DType storage : {DType::f32, DType::bf16}) {
    ModelTrainSettings settings = settings_with_experts(0.8);
    settings.storage = storage;
    ModelTrainer whole(settings, text, *one), resumed(settings, text, *three);
    for (int i = 0; i < 3; ++i) whole.step();
    whole.fetch();
    resumed.weights = whole.weights;
    resumed.states = whole.states;
    resumed.step_count = whole.step_count;
    resumed.restored();
    for (int i = 0; i < 3; ++i) EXPECT_EQ(whole.step().loss, resumed.step().loss);
    EXPECT_EQ(whole.dropped(), resumed.dropped());
    for (size_t i = 0; i < whole.weights.size(); ++i)
      EXPECT_EQ(whole.weights[i].values, resumed.weights[i].values) << whole.weights[i].name;
  }
}

TEST(TrainingSparseExperts, IsRefusedForAModelWithoutExperts) {
  ModelTrainSettings settings = tiny_settings();
  settings.expert_capacity = 1.25;
  const auto backend = cpu::make_cpu_backend({.threads = 1});
  EXPECT_THROW(ModelTrainer(settings, counting_text(500), *backend), Error);
}

}  // namespace
}  // namespace coda
