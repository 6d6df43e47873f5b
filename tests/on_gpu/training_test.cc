// SPDX-License-Identifier: Apache-2.0
// Training with the state in the GPU's memory: the same trajectory as on the CPU within rounding;
// the same bits from run to run and from a restored state; evaluation of the weights in the GPU's
// memory.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <set>

#include "base/relative_error.h"
#include "coda/error.h"
#include "coda/model_runner.h"
#include "coda/step_memory.h"
#include "cpu/cpu_backend.h"
#include "gpu/gpu_backend.h"
#include "on_gpu/on_gpu.h"
#include "train/tiny_model.h"

namespace coda::tests {
namespace {

class TrainingOnGpu : public OnGpuWith<DType> {
 protected:
  TrainingOnGpu() {
    settings_.storage = GetParam();
    settings_.accumulate = 2;
    settings_.clip = 0.5;  // below the norm of the first steps
  }
  void SetUp() override {
    OnGpuWith::SetUp();
    if (!IsSkipped()) gpu_ = gpu::make_gpu_backend();
  }

  ModelTrainSettings settings_ = tiny_settings();
  Tokens text_ = counting_text(500);
  std::unique_ptr<Backend> gpu_;
};

double error_of(const std::vector<float>& values, const std::vector<float>& reference) {
  return relative_error(std::vector<double>(values.begin(), values.end()),
                        std::vector<double>(reference.begin(), reference.end()));
}

// Adam divides by the size of a gradient, so the first steps turn a rounding of a small one into a
// step of full length: after 3 steps weights are compared, after 60 losses.
TEST_P(TrainingOnGpu, HasTheTrajectoryOfTheCpu) {
  const auto cpu = cpu::make_cpu_backend({});
  settings_.optimizer = make_optimizer("adamw", {}, GetParam());
  ModelTrainer a(settings_, text_, *cpu);
  ModelTrainer b(settings_, text_, *gpu_);
  const double tolerance = GetParam() == DType::f32 ? 1e-4 : 2e-2;
  for (int i = 0; i < 3; ++i) {
    const StepReport on_cpu = a.step(), on_gpu = b.step();
    EXPECT_NEAR(on_cpu.loss, on_gpu.loss, tolerance * on_cpu.loss) << "step " << i + 1;
    EXPECT_NEAR(on_cpu.norm, on_gpu.norm, tolerance * on_cpu.norm) << "step " << i + 1;
  }
  b.fetch();
  for (size_t i = 0; i < a.weights.size(); ++i) {
    EXPECT_LT(error_of(b.weights[i].values, a.weights[i].values), 10 * tolerance)
        << a.weights[i].name;
  }
  double on_cpu = 0, on_gpu = 0;
  while (a.step_count < settings_.schedule.total_steps) {
    on_cpu = a.step().loss;
    on_gpu = b.step().loss;
  }
  EXPECT_NEAR(on_cpu, on_gpu, 0.05 * on_cpu);
  EXPECT_LT(on_gpu, 0.6 * std::log(256));

  ModelRunner runner(settings_.model,
                     {.storage = GetParam(), .batch = 4, .sequence = settings_.sequence}, *gpu_);
  runner.bind(b.parameters());
  const double evaluated = evaluate(runner, text_, settings_.sequence).loss();
  EXPECT_NEAR(evaluated, on_gpu, 0.3 * on_gpu);
  b.step();
  EXPECT_NE(evaluate(runner, text_, settings_.sequence).loss(), evaluated);  // sees the new ones
}

TEST_P(TrainingOnGpu, TheSameBitsEachTimeAndFromARestoredState) {
  ModelTrainer whole(settings_, text_, *gpu_);
  ModelTrainer again(settings_, text_, *gpu_);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(whole.step().loss, again.step().loss);
  // Copied while the next step is under way.
  const std::function<void()> fetched = again.start_fetch();
  again.start_step();
  fetched();
  again.finish_step();
  ModelTrainer resumed(settings_, text_, *gpu_);
  resumed.weights = again.weights;
  resumed.states = again.states;
  resumed.step_count = 4;
  resumed.restored();
  for (int i = 0; i < 4; ++i) EXPECT_EQ(whole.step().norm, resumed.step().norm);
  whole.fetch();
  resumed.fetch();
  for (size_t i = 0; i < whole.weights.size(); ++i)
    EXPECT_EQ(whole.weights[i].values, resumed.weights[i].values) << whole.weights[i].name;
}

// Where the moments are changes no bit, of a resumed run either.
TEST_P(TrainingOnGpu, InBf16AloneItLearnsTheSameWhereverTheMomentsAre) {
  settings_.optimizer = make_optimizer("adamw", {}, DType::bf16);
  settings_.optimizer.weights = GetParam();
  ModelTrainer own(settings_, text_, *gpu_);
  settings_.optimizer.states_on_host = true;
  ModelTrainer host(settings_, text_, *gpu_);
  ModelTrainer resumed(settings_, text_, *gpu_);
  double loss = 0;
  while (own.step_count < settings_.schedule.total_steps) {
    loss = own.step().loss;
    EXPECT_EQ(host.step().loss, loss) << "step " << own.step_count;
    if (own.step_count == 20) {
      own.fetch();
      go_on_from(resumed, own);
    } else if (own.step_count > 20) {
      EXPECT_EQ(resumed.step().loss, loss) << "step " << own.step_count;
    }
  }
  EXPECT_LT(loss, 0.6 * std::log(256));
  own.fetch();
  host.fetch();
  for (size_t i = 0; i < own.weights.size(); ++i) {
    EXPECT_EQ(own.weights[i].values, host.weights[i].values) << own.weights[i].name;
    EXPECT_EQ(own.states[i], host.states[i]) << own.weights[i].name;
  }
}

// The update leaves the weights' copies in 8 bits, and finds the scales of the next step's.
using EightBitTrainingOnGpu = WithEightBits<TrainingOnGpu>;
TEST_P(EightBitTrainingOnGpu, HasTheSameBitsEachTimeAndFromARestoredState) {
  settings_.model = tiny_model_of_wide_rows();
  for (const EightBits eight : {EightBits::fp8, EightBits::fp8_kept}) {
    for (const int64_t accumulate : {1, 2}) {
      SCOPED_TRACE("recipe " + std::to_string(static_cast<int>(eight)) + ", passes " +
                   std::to_string(accumulate));
      settings_.eight_bits = eight;
      settings_.accumulate = accumulate;
      ModelTrainer whole(settings_, text_, *gpu_), again(settings_, text_, *gpu_);
      double loss = 0;
      for (int i = 0; i < 6; ++i) {
        loss = whole.step().loss;
        EXPECT_EQ(loss, again.step().loss);
      }
      again.fetch();
      ModelTrainer resumed(settings_, text_, *gpu_);
      go_on_from(resumed, again);
      for (int i = 0; i < 4; ++i) EXPECT_EQ(whole.step().norm, resumed.step().norm);
      while (whole.step_count < settings_.schedule.total_steps) loss = whole.step().loss;
      EXPECT_LT(loss, 0.6 * std::log(256));
    }
  }
}

TEST_P(TrainingOnGpu, RecomputedLayersHaveTheSameTrajectory) {
  std::get<LlamaConfig>(settings_.model).layers = 6;
  ModelTrainer kept(settings_, text_, *gpu_);
  settings_.recomputed_layers = kAllLayers;
  ModelTrainer again(settings_, text_, *gpu_), once_more(settings_, text_, *gpu_);
  EXPECT_LT(again.session().saved_bytes(), kept.session().saved_bytes() / 2);
  const double tolerance = GetParam() == DType::f32 ? 1e-4 : 1e-2;
  for (int i = 0; i < 5; ++i) {
    const StepReport wanted = kept.step(), report = again.step();
    EXPECT_NEAR(report.loss, wanted.loss, tolerance * wanted.loss);
    EXPECT_NEAR(report.norm, wanted.norm, 10 * tolerance * wanted.norm);
    EXPECT_EQ(once_more.step().norm, report.norm);
  }
}

// Where the inputs of layers are between the phases changes no bit.
TEST_P(TrainingOnGpu, WithInputsOfLayersOnTheHostItHasTheSameBits) {
  LlamaConfig& config = std::get<LlamaConfig>(settings_.model);
  config.layers = 8;
  settings_.recomputed_layers = kAllLayers;
  for (const int64_t accumulate : {1, 2}) {
    settings_.accumulate = accumulate;
    settings_.layers_on_host = false;
    ModelTrainer own(settings_, text_, *gpu_);
    settings_.layers_on_host = true;
    ModelTrainer host(settings_, text_, *gpu_);
    const int64_t stream =
        settings_.batch * settings_.sequence * config.hidden * size_of(settings_.storage);
    EXPECT_EQ(own.session().saved_bytes() - host.session().saved_bytes(), 6 * stream);
    for (int i = 0; i < 8; ++i) EXPECT_EQ(host.step().norm, own.step().norm) << "step " << i;
    own.fetch();
    host.fetch();
    for (size_t i = 0; i < own.weights.size(); ++i)
      EXPECT_EQ(own.weights[i].values, host.weights[i].values) << own.weights[i].name;
  }
}

// Launched one by one between timed points of the stream, with the bits of the recorded step.
TEST_P(TrainingOnGpu, AProfiledStepIsTheStepAndNamesEveryProgram) {
  ModelTrainer plain(settings_, text_, *gpu_), trainer(settings_, text_, *gpu_);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(trainer.step().norm, plain.step().norm);
  const Trainer::Profiled profiled = trainer.profile();
  EXPECT_EQ(profiled.report.norm, plain.step().norm);
  EXPECT_EQ(trainer.step().norm, plain.step().norm);
  std::set<std::string> names;
  const std::vector<ProfileEvent>& events = profiled.events;
  for (size_t i = 0; i < events.size(); ++i) {
    if (events[i].track == ProfileTrack::compute) names.insert(events[i].name);
    if (i == 0 || events[i].track != events[i - 1].track) continue;
    // Differences of times that are fp32 milliseconds.
    EXPECT_GE(events[i].start, events[i - 1].start + events[i - 1].seconds - 2e-6)
        << events[i].name << " behind " << events[i - 1].name;
  }
  const Plan& plan = trainer.session().plan();
  for (const auto* steps : {&plan.forward, &plan.backward})
    for (const PlanStep& step : *steps) EXPECT_TRUE(names.contains(step.name)) << step.name;
  for (const char* name : {"adamw", "gradient_norm", "gradient_squares", "loss_check"})
    EXPECT_TRUE(names.contains(name)) << name;
}

// Of a model whose tensors are large beside what kernels and graphs take.
TEST_P(TrainingOnGpu, AStepTakesTheMemoryThatIsSaidBefore) {
  LlamaConfig& config = std::get<LlamaConfig>(settings_.model);
  config.layers = 4;
  config.hidden = 1024;
  config.heads = 16;
  config.kv_heads = 4;
  config.head_dim = 64;
  config.mlp = 2816;
  config.max_positions = 512;
  settings_.sequence = 512;
  settings_.batch = 32;
  for (const bool again : {false, true}) {
    settings_.recomputed_layers = again ? kAllLayers : 0;
    settings_.layers_on_host = again;
    settings_.optimizer.weights = GetParam();
    settings_.optimizer.states_on_host = again;
    gpu_->synchronize();  // what the trainer before this one had is free then
    const auto said = static_cast<double>(require_memory(settings_, *gpu_, false).bytes());
    const int64_t before = gpu_->free_bytes();
    ModelTrainer trainer(settings_, text_, *gpu_);
    for (int i = 0; i < 3; ++i) trainer.step();
    const auto taken = static_cast<double>(before - gpu_->free_bytes());
    EXPECT_GT(taken, 0.95 * said - 64e6);  // the pool may have some already
    EXPECT_LT(taken, 1.1 * said + 512e6) << require_memory(settings_, *gpu_, false).text();
  }
  settings_.batch = 1 << 14;
  settings_.recomputed_layers = 0;
  settings_.layers_on_host = false;
  gpu_->synchronize();
  const int64_t before = gpu_->free_bytes();
  try {
    require_memory(settings_, *gpu_, false);
    ADD_FAILURE() << "a step of " << settings_.batch << " sequences was not refused";
  } catch (const MemoryError& error) {
    EXPECT_NE(std::string(error.what()).find("what fits: --batch "), std::string::npos)
        << error.what();
  }
  EXPECT_EQ(gpu_->free_bytes(), before);
}

// A row whose experts are almost equally good may get another one than on the CPU, which changes
// gradients by more than rounding does, but hardly the loss.
TEST_P(TrainingOnGpu, WithExpertsHasTheTrajectoryOfTheCpu) {
  std::get<LlamaConfig>(settings_.model).experts =
      Experts{.count = 5, .chosen = 2, .mlp = 40, .normalised = true};
  const auto cpu = cpu::make_cpu_backend({});
  ModelTrainer a(settings_, text_, *cpu);
  ModelTrainer b(settings_, text_, *gpu_);
  const double tolerance = GetParam() == DType::f32 ? 1e-4 : 2e-2;
  for (int i = 0; i < 3; ++i) {
    const double on_cpu = a.step().loss;
    EXPECT_NEAR(on_cpu, b.step().loss, tolerance * on_cpu) << "step " << i + 1;
  }
  ModelTrainer again(settings_, text_, *gpu_);
  for (int i = 0; i < 3; ++i) again.step();
  EXPECT_EQ(again.step().loss, b.step().loss);
}

std::string name_of_type(const ::testing::TestParamInfo<DType>& info) {
  return std::string(name_of(info.param));
}
INSTANTIATE_TEST_SUITE_P(Types, TrainingOnGpu, ::testing::Values(DType::f32, DType::bf16),
                         name_of_type);
// GEMMs in 8 bits need the storage bf16.
INSTANTIATE_TEST_SUITE_P(Types, EightBitTrainingOnGpu, ::testing::Values(DType::bf16),
                         name_of_type);

}  // namespace
}  // namespace coda::tests
