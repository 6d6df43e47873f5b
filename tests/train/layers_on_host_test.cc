// SPDX-License-Identifier: Apache-2.0
// Inputs of recomputed layers in the host's memory: training has the bits that it has without, on
// backends whose copies run as late as a device may run them, or as early, so nothing is read
// before its copy has ended and nothing is overwritten while a copy needs it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <variant>
#include <vector>

#include "coda/error.h"
#include "cpu/cpu_backend.h"
#include "runtime/late_backend.h"
#include "train/tiny_model.h"

namespace coda {
namespace {

using testing::HasSubstr;

namespace layers_on_host {

constexpr int kLayers = 6;

ModelTrainSettings settings_of(DType storage, int64_t accumulate) {
  ModelTrainSettings settings = tiny_settings();
  std::get<LlamaConfig>(settings.model).layers = kLayers;
  settings.storage = storage;
  settings.accumulate = accumulate;
  settings.recomputed_layers = kAllLayers;
  settings.batch = 1;
  return settings;
}

struct Trained {
  std::vector<double> losses;
  std::vector<double> norms;
  Weights weights;
  int64_t saved_bytes = 0;
};

Trained trained(const ModelTrainSettings& settings, Backend& backend) {
  const Tokens text = counting_text(500);
  ModelTrainer trainer(settings, text, backend);
  Trained trained;
  trained.saved_bytes = trainer.session().saved_bytes();
  for (int step = 0; step < 3; ++step) {
    const StepReport report = trainer.step();
    trained.losses.push_back(report.loss);
    trained.norms.push_back(report.norm);
  }
  trainer.fetch();
  trained.weights = trainer.weights;
  return trained;
}

void expect_same_bits(const Trained& one, const Trained& other) {
  EXPECT_EQ(one.losses, other.losses);
  EXPECT_EQ(one.norms, other.norms);
  for (size_t i = 0; i < one.weights.size(); ++i)
    EXPECT_EQ(one.weights[i].values, other.weights[i].values) << one.weights[i].name;
}

void expect_same_on_host(ModelTrainSettings settings, int copies) {
  FarBackend far;
  const Trained wanted = trained(settings, far);
  settings.layers_on_host = true;
  for (const bool early : {false, true}) {
    SCOPED_TRACE(early ? "early" : "late");
    LateBackend late;
    late.copies_early = early;
    const Trained found = trained(settings, late);
    expect_same_bits(wanted, found);
    const int64_t stream = settings.batch * settings.sequence *
                           std::get<LlamaConfig>(settings.model).hidden * size_of(settings.storage);
    EXPECT_EQ(wanted.saved_bytes - found.saved_bytes, copies * stream);
  }
}

// Of six layers the first starts from token ids, and the last one's input stays.
TEST(LayersOnHost, TrainingHasTheSameBitsHoweverLateOrEarlyCopiesRun) {
  for (const DType storage : {DType::f32, DType::bf16})
    for (const int64_t accumulate : {1, 2})
      expect_same_on_host(settings_of(storage, accumulate), kLayers - 2);
}

TEST(LayersOnHost, OfSomeRecomputedLayersTheirsMove) {
  ModelTrainSettings settings = settings_of(DType::bf16, 2);
  settings.recomputed_layers = 4;
  expect_same_on_host(settings, 2);
}

TEST(LayersOnHost, ABackendThatHasAllTensorsThereRefuses) {
  const auto cpu = cpu::make_cpu_backend({.threads = 1});
  ModelTrainSettings settings = settings_of(DType::f32, 1);
  settings.layers_on_host = true;
  const Tokens text = counting_text(500);
  try {
    ModelTrainer(settings, text, *cpu);
    ADD_FAILURE() << "not refused";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("where the backend 'cpu' has all tensors"));
  }
}

}  // namespace layers_on_host
}  // namespace
}  // namespace coda
