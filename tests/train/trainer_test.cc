// SPDX-License-Identifier: Apache-2.0
// Training a graph of one's own: it learns, passes add up to one large batch, a backend with memory
// of its own trains the same, what is wrong with weights and batches is said at once, and weights
// come back from a file.
#include "coda/trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/relative_error.h"
#include "coda/checkpoint.h"
#include "coda/error.h"
#include "coda/float16.h"
#include "cpu/cpu_backend.h"
#include "io/temp_folder.h"
#include "runtime/far_backend.h"
#include "runtime/late_backend.h"
#include "train/gradient_session.h"

namespace coda {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr int64_t kRows = 16;

// relu(x · W1ᵀ + b) · W2ᵀ is to be t: the mean of squared differences.
struct Net {
  Graph graph;
  DType storage;
  int64_t hidden;
  Value x = graph.input("x", {"M", 3});
  Value t = graph.input("t", {"M", 1});
  Value w1 = graph.parameter("w1", {hidden, 3}, storage);
  Value b = graph.parameter("b", {1, hidden});
  Value w2 = graph.parameter("w2", {2, hidden}, storage);
  Value y = row_sum(linear(maximum(linear(x, w1) + b, 0.0), w2));
  Value loss = col_sum((y - t) * (y - t)) * graph.reciprocal_dim("M");

  explicit Net(DType storage = DType::f32, int64_t hidden = 32)
      : storage(storage), hidden(hidden) {}
};

// Rows of "|a - b| + c", another set for each pass.
TensorMap batch_of(int64_t pass, int64_t rows = kRows) {
  std::vector<float> x;
  std::vector<float> t;
  for (int64_t i = pass * rows; i < (pass + 1) * rows; ++i) {
    const float a = std::sin(static_cast<float>(i));
    const float b = std::cos(static_cast<float>(3 * i));
    const float c = std::sin(static_cast<float>(7 * i));
    x.insert(x.end(), {a, b, c});
    t.push_back(std::abs(a - b) + c);
  }
  TensorMap batch = {{"x", Tensor(DType::f32, rows, 3)}, {"t", Tensor(DType::f32, rows, 1)}};
  batch.at("x").set(x);
  batch.at("t").set(t);
  return batch;
}

TrainOptions options_of(int64_t rows = kRows, int64_t accumulate = 1) {
  TrainOptions options;
  options.sizes = {{"M", rows}};
  options.accumulate = accumulate;
  options.schedule = {.peak = 2e-2, .floor = 1e-3, .warmup_steps = 5, .total_steps = 200};
  options.optimizer = make_optimizer("adamw", {{"decay", 0.01}});
  return options;
}

Trainer trainer_of(const Net& net, Backend& backend, const TrainOptions& options) {
  return {net.graph, net.loss, initial_weights(net.graph, 3, 0.3), backend, options};
}

double error_of(const std::vector<float>& values, const std::vector<float>& reference) {
  return relative_error(std::vector<double>(values.begin(), values.end()),
                        std::vector<double>(reference.begin(), reference.end()));
}

std::string refusal(auto&& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Trainer, LearnsWithAGraphOfOnesOwn) {
  const auto backend = cpu::make_cpu_backend({.threads = 1});
  for (const DType storage : {DType::f32, DType::bf16}) {
    const Net net(storage);
    TrainOptions options = options_of();
    options.storage = storage;
    options.outputs = {{"y", net.y}};
    Trainer trainer = trainer_of(net, *backend, options);
    const double first = trainer.loss(batch_of(0));
    EXPECT_EQ(trainer.step(batch_of(0)).loss, first);  // before the update
    while (trainer.step_count < 200) trainer.step(batch_of(trainer.step_count % 8));
    EXPECT_LT(trainer.loss(batch_of(0)), 0.03 * first) << name_of(storage);
    trainer.require_sound(batch_of(0));
    EXPECT_EQ(trainer.tensor("y").rows(), kRows);
  }
}

TEST(Trainer, PassesAddUpToOneLargeBatch) {
  const auto backend = cpu::make_cpu_backend({.threads = 1});
  const Net net;
  Trainer whole = trainer_of(net, *backend, options_of(4 * kRows));
  Trainer parts = trainer_of(net, *backend, options_of(kRows, 4));
  for (int i = 0; i < 3; ++i) {
    const StepReport a = whole.step(batch_of(0, 4 * kRows));
    const StepReport b = parts.step([](int64_t pass) { return batch_of(pass); });
    EXPECT_NEAR(a.loss, b.loss, 1e-5 * a.loss);
    EXPECT_NEAR(a.norm, b.norm, 1e-4 * a.norm);
  }
  EXPECT_THAT(refusal([&] { parts.step(batch_of(0)); }), HasSubstr("4 passes"));
}

// The host cannot read the memory of this backend. The program that updates rows in such memory may
// contract products into FMAs; the program that updates host memory rounds each product. With 64
// hidden columns the plan stores the squares of w2's gradient, which the norm adds to the others.
TEST(Trainer, ABackendWithItsOwnMemoryTrainsTheSame) {
  ReferenceBackend here;
  FarBackend far;
  for (const auto& [storage, hidden] :
       {std::pair<DType, int64_t>(DType::f32, 32), {DType::f32, 64}, {DType::bf16, 32}}) {
    const Net net(storage, hidden);
    for (const double clip : {0.0, 0.5}) {
      for (const int64_t accumulate : {1, 2}) {
        TrainOptions options = options_of(kRows, accumulate);
        options.clip = clip;
        Trainer a = trainer_of(net, here, options);
        Trainer b = trainer_of(net, far, options);
        EXPECT_EQ(has_tensor(b.session().plan(), squares_name("w2")), hidden == 64);
        const double tolerance = storage == DType::f32 ? 1e-6 : 1e-3;
        for (int i = 0; i < 8; ++i) {
          const Trainer::Batches batches = [&](int64_t pass) { return batch_of(i + pass); };
          const StepReport on_host = a.step(batches), apart = b.step(batches);
          EXPECT_NEAR(on_host.loss, apart.loss, tolerance * on_host.loss);
          EXPECT_NEAR(on_host.norm, apart.norm, 2 * tolerance * on_host.norm);
        }
        b.fetch();
        for (size_t i = 0; i < a.weights.size(); ++i) {
          EXPECT_LT(error_of(b.weights[i].values, a.weights[i].values), tolerance)
              << a.weights[i].name;
          EXPECT_LT(error_of(b.states[i].at("m"), a.states[i].at("m")), 10 * tolerance);
          EXPECT_LT(error_of(b.states[i].at("v"), a.states[i].at("v")), 10 * tolerance);
        }
      }
    }
  }
}

// The same formulas update parameters in place, and rows of one matrix. No gradient here is almost
// 0, because rounding would decide its sign, which Lion uses.
TEST(Trainer, EachOptimizerTrainsTheSameOnABackendWithItsOwnMemory) {
  ReferenceBackend here;
  FarBackend far;
  const Net net(DType::bf16);
  for (const OptimizerKind& kind : optimizer_kinds()) {
    for (const DType states : {DType::f32, DType::bf16}) {
      SCOPED_TRACE(kind.name + " " + std::string(name_of(states)));
      TrainOptions options = options_of();
      options.optimizer = make_optimizer(kind.name, {{"decay", 0.1}}, states);
      options.schedule.peak *= kind.rate;
      Trainer a = trainer_of(net, here, options);
      Trainer b = trainer_of(net, far, options);
      const double first = a.loss(batch_of(0));
      for (int i = 0; i < 8; ++i)
        EXPECT_NEAR(a.step(batch_of(0)).loss, b.step(batch_of(0)).loss, 1e-3 * first);
      EXPECT_LT(a.loss(batch_of(0)), first);
      b.fetch();
      for (size_t i = 0; i < a.weights.size(); ++i) {
        EXPECT_LT(error_of(b.weights[i].values, a.weights[i].values), 1e-3) << a.weights[i].name;
        ASSERT_EQ(a.states[i].size(), options.optimizer.states.size());
        for (const auto& [name, values] : a.states[i])
          EXPECT_LT(error_of(b.states[i].at(name), values), 1e-2) << name;
      }
    }
  }
}

// A checkpoint stores the states of its optimizer by name, and only the same optimizer can resume.
TEST(Trainer, GoesOnFromACheckpointOfItsOwnOptimizer) {
  const auto cpu = cpu::make_cpu_backend({.threads = 1});
  FarBackend far;
  const Net net;
  for (const OptimizerKind& kind : optimizer_kinds()) {
    for (Backend* backend : {cpu.get(), static_cast<Backend*>(&far)}) {
      TrainOptions options = options_of();
      options.optimizer = make_optimizer(kind.name);
      const TempFolder folder;
      Trainer whole = trainer_of(net, *backend, options);
      for (int i = 0; i < 3; ++i) whole.step(batch_of(i));
      save_checkpoint(folder.path(), whole);
      for (int i = 3; i < 6; ++i) whole.step(batch_of(i));
      Trainer resumed = trainer_of(net, *backend, options);
      ASSERT_TRUE(load_checkpoint(folder.path(), resumed));
      for (int i = 3; i < 6; ++i) resumed.step(batch_of(i));
      whole.fetch();
      resumed.fetch();
      for (size_t i = 0; i < whole.weights.size(); ++i) {
        EXPECT_EQ(whole.weights[i].values, resumed.weights[i].values) << kind.name;
        EXPECT_EQ(whole.states[i], resumed.states[i]) << kind.name;
      }
      options.optimizer = make_optimizer(kind.name == "adamw" ? "lion" : "adamw");
      Trainer other = trainer_of(net, *backend, options);
      EXPECT_THAT(refusal([&] { load_checkpoint(folder.path(), other); }),
                  AllOf(HasSubstr("its optimizer is '" + kind.name + "'"),
                        HasSubstr("this trainer's is '" + options.optimizer.name + "'")));
    }
  }
}

// The host is steps ahead of the device. It must not overwrite memory that a copy still reads.
TEST(Trainer, ABackendThatIsFarBehindTrainsTheSame) {
  FarBackend far;
  LateBackend late;
  const Net net;
  for (const int64_t accumulate : {1, 5}) {
    Trainer a = trainer_of(net, far, options_of(kRows, accumulate));
    Trainer b = trainer_of(net, late, options_of(kRows, accumulate));
    std::vector<StepReport> one;
    std::vector<StepReport> other;
    for (int64_t step = 0; step < 6; ++step) {
      const auto batch = [&](int64_t pass) { return batch_of(step * accumulate + pass); };
      one.push_back(a.step(batch));
      b.start_step(batch);  // the numbers of a step wait while those of the next are set
      if (b.started_steps() == Trainer::kMostStarted) other.push_back(b.finish_step());
    }
    while (b.started_steps() > 0) other.push_back(b.finish_step());
    for (size_t step = 0; step < one.size(); ++step) {
      EXPECT_EQ(one[step].loss, other[step].loss) << step;
      EXPECT_EQ(one[step].norm, other[step].norm) << step;
    }
    a.fetch();
    b.fetch();
    for (size_t i = 0; i < a.weights.size(); ++i)
      EXPECT_EQ(a.weights[i].values, b.weights[i].values) << a.weights[i].name;
  }
}

// Of weights that are given, and of those that are fetched.
TEST(Trainer, CopiesIn16BitsAreTheRoundedWeights) {
  const auto here = cpu::make_cpu_backend({.threads = 1});
  FarBackend far;
  const Net net(DType::bf16);
  TrainOptions options = options_of();
  options.storage = DType::bf16;
  for (Backend* backend : {here.get(), static_cast<Backend*>(&far)}) {
    Trainer trainer = trainer_of(net, *backend, options);
    const auto expect_copies = [&] {
      for (const WeightTensor& w : trainer.weights) {
        for (size_t i = 0; i < w.bf16.size(); ++i)
          ASSERT_EQ(w.bf16[i], bf16_from_float(w.values[i])) << w.name;
      }
    };
    const double before = trainer.loss(batch_of(0));
    for (WeightTensor& w : trainer.weights)
      for (float& value : w.values) value *= -0.75F;
    trainer.restored();
    expect_copies();
    EXPECT_NE(trainer.loss(batch_of(0)), before) << backend->name();
    for (int64_t step = 0; step < 3; ++step) trainer.step(batch_of(step));
    trainer.fetch();
    expect_copies();
  }
}

// The loss is finite, because the large input is multiplied by 0. The square of its gradient
// overflows fp32.
TEST(Trainer, OnABackendWithItsOwnMemoryANormThatIsNotFiniteLeavesTheStateAsItWas) {
  const Net net;
  FarBackend far;
  Trainer trainer = trainer_of(net, far, options_of());
  trainer.step(batch_of(0));
  trainer.fetch();
  for (float& w : find_weight(trainer.weights, "w2").values) w = 0;
  trainer.restored();
  const Weights weights = trainer.weights;
  const std::vector<ParameterState> states = trainer.states;
  TensorMap batch = batch_of(1);
  batch.at("x").fill(1e20F);
  EXPECT_THAT(refusal([&] { trainer.step(batch); }),
              HasSubstr("step 2: the gradients' norm is not finite"));
  EXPECT_EQ(trainer.step_count, 1);
  trainer.fetch();
  for (size_t i = 0; i < weights.size(); ++i) {
    EXPECT_EQ(weights[i].values, trainer.weights[i].values);
    EXPECT_EQ(states[i].at("m"), trainer.states[i].at("m"));
    EXPECT_EQ(states[i].at("v"), trainer.states[i].at("v"));
  }
}

// As on a GPU: what a loss or a norm stops, it stops for the step that was started behind it too.
TEST(Trainer, StepsStartedAheadAreThoseOneByOneAndFailTogether) {
  ReferenceBackend here;
  FarBackend far;
  const Net net;
  for (Backend* backend : {static_cast<Backend*>(&here), static_cast<Backend*>(&far)}) {
    for (const int64_t accumulate : {1, 2}) {
      const TrainOptions options = options_of(kRows, accumulate);
      Trainer one = trainer_of(net, *backend, options);
      Trainer ahead = trainer_of(net, *backend, options);
      const auto batches = [](int64_t step) {
        return [step](int64_t pass) { return batch_of(2 * step + pass); };
      };
      ahead.start_step(batches(0));
      for (int i = 0; i < 5; ++i) {
        ahead.start_step(batches(i + 1));
        EXPECT_EQ(ahead.started_steps(), 2);
        EXPECT_EQ(ahead.step_count, i + 2);
        const StepReport wanted = one.step(batches(i)), report = ahead.finish_step();
        EXPECT_EQ(report.loss, wanted.loss);
        EXPECT_EQ(report.norm, wanted.norm);
        EXPECT_EQ(report.rate, wanted.rate);
      }
      EXPECT_THAT(refusal([&] { ahead.fetch(); }), HasSubstr("finish_step()"));
      EXPECT_THAT(refusal([&] { ahead.step(batches(9)); }), HasSubstr("finish_step()"));
      ahead.start_step(batches(6));
      EXPECT_THAT(refusal([&] { ahead.start_step(batches(7)); }), HasSubstr("2 steps started"));
      ahead.finish_step();
      ahead.finish_step();
      EXPECT_THAT(refusal([&] { ahead.finish_step(); }), HasSubstr("no step is started"));
    }
  }

  Trainer trainer = trainer_of(net, far, options_of());
  trainer.step(batch_of(0));
  trainer.fetch();
  const Weights weights = trainer.weights;
  TensorMap bad = batch_of(1);
  bad.at("t").fill(INFINITY);
  trainer.start_step([&](int64_t) { return bad; });
  trainer.start_step([](int64_t) { return batch_of(2); });
  EXPECT_THAT(refusal([&] { trainer.finish_step(); }), HasSubstr("step 2: the loss is not finite"));
  EXPECT_EQ(trainer.started_steps(), 0);
  EXPECT_EQ(trainer.step_count, 1);
  trainer.fetch();
  for (size_t i = 0; i < weights.size(); ++i)
    EXPECT_EQ(weights[i].values, trainer.weights[i].values);
  trainer.step(batch_of(1));  // and it goes on
  trainer.fetch();
  EXPECT_NE(weights[0].values, trainer.weights[0].values);
}

TEST(Trainer, OnABackendWithItsOwnMemoryAStateComesBackBitForBit) {
  const Net net(DType::bf16);
  FarBackend far;
  Trainer whole = trainer_of(net, far, options_of());
  for (int i = 0; i < 3; ++i) whole.step(batch_of(i));
  whole.fetch();
  Trainer resumed = trainer_of(net, far, options_of());
  resumed.weights = whole.weights;
  resumed.states = whole.states;
  resumed.step_count = whole.step_count;
  resumed.restored();
  for (int i = 3; i < 6; ++i)
    EXPECT_EQ(whole.step(batch_of(i)).loss, resumed.step(batch_of(i)).loss);
  whole.fetch();
  resumed.fetch();
  for (size_t i = 0; i < whole.weights.size(); ++i)
    EXPECT_EQ(whole.weights[i].values, resumed.weights[i].values);
}

// Counts what is copied off.
class WatchedBackend : public FarBackend {
 public:
  void copy_out(const TensorView& own, const TensorView& host) override {
    ++copies;
    FarBackend::copy_out(own, host);
  }

  int copies = 0;
};

TEST(Trainer, WhatWasUploadedIsNotFetchedAndItsCheckpointHasStatesOfZero) {
  const Net net(DType::bf16);
  WatchedBackend far;
  const TempFolder folder;
  Trainer trainer = trainer_of(net, far, options_of());
  trainer.fetch();
  save_checkpoint(folder.path(), trainer);
  EXPECT_EQ(far.copies, 0);
  trainer.step(batch_of(0));
  const int copies = far.copies;
  trainer.fetch();
  EXPECT_GE(far.copies, copies + 3 * std::ssize(trainer.weights));
  Trainer first = trainer_of(net, far, options_of());
  ASSERT_TRUE(load_checkpoint(folder.path(), first));
  for (const ParameterState& its : first.states)
    for (const char* state : {"m", "v"})
      EXPECT_THAT(its.at(state), AllOf(Not(IsEmpty()), Each(0.0F)));
  first.step(batch_of(0));
  first.fetch();
  for (size_t i = 0; i < trainer.weights.size(); ++i)
    EXPECT_EQ(first.weights[i].values, trainer.weights[i].values);
}

TEST(Trainer, GoesOnFromARestoredStateBitForBit) {
  const auto backend = cpu::make_cpu_backend({.threads = 1});
  const Net net(DType::bf16);
  Trainer whole = trainer_of(net, *backend, options_of());
  for (int i = 0; i < 3; ++i) whole.step(batch_of(i));
  Trainer resumed = trainer_of(net, *backend, options_of());
  resumed.weights = whole.weights;
  resumed.states = whole.states;
  resumed.step_count = whole.step_count;
  resumed.restored();
  Trainer moved = std::move(resumed);
  for (int i = 3; i < 6; ++i) EXPECT_EQ(whole.step(batch_of(i)).loss, moved.step(batch_of(i)).loss);
}

// Also where the backend's memory has the moments of earlier steps.
TEST(Trainer, StatesThatARestoredStateDoesNotHaveAreZero) {
  ReferenceBackend here;
  FarBackend far;
  const Net net;
  for (Backend* backend : {static_cast<Backend*>(&here), static_cast<Backend*>(&far)}) {
    Trainer first = trainer_of(net, *backend, options_of());
    Trainer again = trainer_of(net, *backend, options_of());
    const Weights initial = again.weights;
    for (int i = 0; i < 3; ++i) again.step(batch_of(i));
    again.fetch();
    again.weights = initial;
    for (ParameterState& its : again.states) its.clear();
    again.step_count = 0;
    again.restored();
    first.step(batch_of(5));
    again.step(batch_of(5));
    first.fetch();
    again.fetch();
    for (size_t i = 0; i < initial.size(); ++i) {
      EXPECT_EQ(first.weights[i].values, again.weights[i].values) << backend->name();
      EXPECT_EQ(first.states[i], again.states[i]) << backend->name();
    }
  }
}

TEST(Trainer, SaysWhatIsWrongWithWeights) {
  const auto backend = cpu::make_cpu_backend({.threads = 1});
  const Net net;
  Weights weights = initial_weights(net.graph, 1);
  find_weight(weights, "b").name = "bias";
  find_weight(weights, "w1").rows = 31;
  EXPECT_THAT(refusal([&] { Trainer(net.graph, net.loss, weights, *backend, options_of()); }),
              AllOf(HasSubstr("'bias' is no parameter"), HasSubstr("'b' is missing"),
                    HasSubstr("'w1' is f32 [31, 3], but the graph's is f32 [32, 3]"),
                    Not(HasSubstr("w2"))));
  EXPECT_THAT(refusal([&] {
                Trainer(net.graph, net.y, initial_weights(net.graph, 1), *backend, options_of());
              }),
              AllOf(HasSubstr("[M, 1]"), HasSubstr("one number")));
}

TEST(Trainer, RefusesStatesOfAnOptimizerThatHaveOneName) {
  const auto backend = cpu::make_cpu_backend({.threads = 1});
  const Net net;
  for (const std::vector<OptimizerState>& states :
       {std::vector<OptimizerState>{{"m"}, {"m"}}, {{"master"}}}) {
    TrainOptions options = options_of();
    options.optimizer.states = states;
    EXPECT_THAT(refusal([&] { trainer_of(net, *backend, options); }),
                HasSubstr("two states '" + states[0].name + "', or that name is reserved"));
  }
}

TEST(Trainer, SaysWhatIsWrongWithABatchAndTheStateStays) {
  for (const bool is_far : {false, true}) {
    ReferenceBackend here;
    FarBackend far;
    Backend& backend = is_far ? static_cast<Backend&>(far) : here;
    const Net net;
    Trainer trainer = trainer_of(net, backend, options_of());
    trainer.step(batch_of(0));
    TensorMap batch = batch_of(1);
    batch.erase("t");
    batch.at("x") = Tensor(DType::f32, kRows, 4);
    batch.emplace("q", Tensor(DType::f32, 1, 1));
    EXPECT_THAT(refusal([&] { trainer.step(batch); }),
                AllOf(HasSubstr("'t' is missing"), HasSubstr("'x' is f32 [16, 3]"),
                      HasSubstr("no tensor named 'q'")));
    EXPECT_EQ(trainer.step_count, 1);
  }
}

TEST(Trainer, ALossThatIsNotFiniteLeavesTheStateAsItWas) {
  const auto backend = cpu::make_cpu_backend({.threads = 1});
  const Net net;
  Trainer trainer = trainer_of(net, *backend, options_of());
  trainer.step(batch_of(0));
  const Weights before = trainer.weights;
  TensorMap batch = batch_of(1);
  batch.at("x").fill(std::nanf(""));
  EXPECT_THAT(refusal([&] { trainer.step(batch); }), HasSubstr("step 2: the loss is not finite"));
  EXPECT_EQ(trainer.step_count, 1);
  for (size_t i = 0; i < before.size(); ++i) EXPECT_EQ(before[i].values, trainer.weights[i].values);
}

// The products of x and w are beyond fp32, but the gradient of w, the sum of x, is not, nor is its
// square. A loss of another microbatch is finite.
TEST(Trainer, ALossThatIsNotFiniteThoughItsGradientIsLeavesTheStateAsItWas) {
  const auto here = cpu::make_cpu_backend({.threads = 1});
  FarBackend far;
  Graph graph;
  const Value x = graph.input("x", {"M", 4});
  const Value w = graph.parameter("w", {1, 4});
  const Value loss = col_sum(linear(x, w));
  for (Backend* backend : {here.get(), static_cast<Backend*>(&far)}) {
    for (const int64_t bad : {0, 1}) {
      Trainer trainer{graph, loss, initial_weights(graph, 3, 0.3), *backend, options_of(kRows, 2)};
      for (float& value : trainer.weights[0].values) value = 1e25F;
      trainer.restored();
      const auto batch = [&](int64_t pass) {
        TensorMap tensors = {{"x", Tensor(DType::f32, kRows, 4)}};
        tensors.at("x").fill(pass == bad ? 1e15F : 1e-25F);
        return tensors;
      };
      EXPECT_THAT(refusal([&] { trainer.step(batch); }), HasSubstr("step 1: the loss is not"));
      trainer.fetch();
      EXPECT_THAT(trainer.weights[0].values, Each(1e25F)) << backend->name();
      EXPECT_THAT(trainer.states[0].at("m"), Each(0.0F));
    }
  }
}

TEST(Trainer, ConstantsAreGivenOnce) {
  const auto backend = cpu::make_cpu_backend({.threads = 1});
  const Net net;
  Trainer trainer = trainer_of(net, *backend, options_of());
  TensorMap batch = batch_of(0);
  const Tensor t = batch.at("t");
  batch.erase("t");
  trainer.bind({{"t", t}});
  EXPECT_GT(trainer.step(batch).loss, 0);
}

TEST(Trainer, WeightsComeBackFromAFile) {
  const TempFolder folder;
  const auto backend = cpu::make_cpu_backend({.threads = 1});
  const Net net(DType::bf16);
  Trainer trainer = trainer_of(net, *backend, options_of());
  for (int i = 0; i < 3; ++i) trainer.step(batch_of(i));
  save_weights(folder / "net.safetensors", trainer.weights);
  Trainer loaded = trainer_of(net, *backend, options_of());
  load_weights(folder / "net.safetensors", loaded.weights);
  loaded.restored();
  EXPECT_EQ(loaded.loss(batch_of(5)), trainer.loss(batch_of(5)));
  Net other;
  other.graph.parameter("extra", {2, 2});
  Weights weights = initial_weights(other.graph, 9);
  const std::vector<float> before = weights[0].values;
  EXPECT_THAT(refusal([&] { load_weights(folder / "net.safetensors", weights); }),
              HasSubstr("extra"));
  EXPECT_EQ(weights[0].values, before);
}

TEST(Trainer, GoesOnFromItsCheckpointBitForBit) {
  const TempFolder folder;
  const auto backend = cpu::make_cpu_backend({.threads = 1});
  for (const DType storage : {DType::f32, DType::bf16}) {
    const auto run = folder / std::string(name_of(storage));
    const Net net(storage);
    Trainer whole = trainer_of(net, *backend, options_of());
    EXPECT_FALSE(load_checkpoint(run, whole));
    for (int i = 0; i < 4; ++i) {
      whole.step(batch_of(i));
      save_checkpoint(run, whole);
    }
    Trainer resumed = trainer_of(net, *backend, options_of());
    EXPECT_TRUE(load_checkpoint(run, resumed));
    EXPECT_EQ(resumed.step_count, 4);
    for (int i = 4; i < 7; ++i)
      EXPECT_EQ(whole.step(batch_of(i)).loss, resumed.step(batch_of(i)).loss);
    Trainer other =
        trainer_of(Net(storage == DType::f32 ? DType::bf16 : DType::f32), *backend, options_of());
    EXPECT_THAT(refusal([&] { load_checkpoint(run, other); }), HasSubstr("w1"));
    EXPECT_EQ(other.step_count, 0);
  }
}

TEST(SaveModel, AFolderOfAKnownModelComesBack) {
  const TempFolder folder;
  const ModelConfig config =
      Gpt2Config{.layers = 1, .hidden = 8, .heads = 2, .vocab = 11, .positions = 6, .mlp = 12};
  for (const DType storage : {DType::f32, DType::bf16}) {
    const auto model = build_model(config, {.storage = storage, .positions = 6});
    const Weights weights = initial_weights(*model, 5);
    save_model(folder / "model", config, weights);
    EXPECT_EQ(load_model_config(folder / "model"), config);
    Weights loaded = initial_weights(*model, 6);
    load_weights(folder / "model", loaded);
    for (size_t i = 0; i < weights.size(); ++i) {
      EXPECT_EQ(weights[i].bf16, loaded[i].bf16) << weights[i].name;
      if (storage == DType::f32) {
        EXPECT_EQ(weights[i].values, loaded[i].values);
      }
    }
  }
}

}  // namespace
}  // namespace coda
