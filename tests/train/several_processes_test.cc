// SPDX-License-Identifier: Apache-2.0
// Several processes that train together (here as threads): the same trajectory as one process with
// the whole batch, the same bits each time, a state that resumes with another number of processes,
// and errors of one process that all of them report.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <latch>
#include <limits>
#include <memory>
#include <mutex>

#include "base/relative_error.h"
#include "coda/error.h"
#include "coda/run.h"
#include "collective/threads.h"
#include "cpu/cpu_backend.h"
#include "io/temp_folder.h"
#include "train/compared_settings.h"
#include "train/given_copies.h"
#include "train/gradient_session.h"
#include "train/tiny_model.h"

namespace coda {
namespace {

using testing::HasSubstr;

// A backend whose copies beside what it runs are made when they are waited for.
class LateCopies : public Backend {
 public:
  std::string_view name() const override { return "late copies"; }
  std::unique_ptr<Kernel> prepare(const Program& program, const DimValues& sizes) override {
    return cpu_->prepare(program, sizes);
  }
  std::unique_ptr<Kernel> prepare(const OpaqueCall& call, std::span<const TensorDecl> tensors,
                                  const DimValues& sizes) override {
    return cpu_->prepare(call, tensors, sizes);
  }
  std::function<void()> copy_out_concurrently(const std::vector<CopyOut>& copies) override {
    return [this, copies] {
      for (const CopyOut& copy : copies) copy_out(copy.own, copy.host);
    };
  }

 private:
  std::unique_ptr<Backend> cpu_ = cpu::make_cpu_backend({.threads = 1});
};

struct Trajectory {
  std::vector<double> losses;
  std::vector<double> norms;
  int64_t step_count = 0;
  Weights weights;  // of rank 0
  std::vector<ParameterState> states;
  std::vector<float> eight_bit_scales;
  int besides = 0;  // exchanges beside the backward, the update or the forward, of rank 0
};

// `settings` from `start` on (no weights: from the first step), by `world` processes, 0: by one
// whose state is the host's; `late` as ThreadCommunicator has it.
Trajectory trained(ModelTrainSettings settings, int world, int steps, const Trajectory& start = {},
                   bool late = false) {
  static const Tokens text = counting_text(500);
  Trajectory course;
  std::mutex mutex;
  const auto run = [&](ThreadCommunicator& communicator) {
    const auto backend = cpu::make_cpu_backend({.threads = 1});
    ModelTrainSettings its = settings;
    its.communicator = world == 0 ? nullptr : &communicator;
    ModelTrainer trainer(its, text, *backend);
    if (!start.weights.empty()) {
      trainer.weights = start.weights;
      trainer.states = start.states;
      trainer.step_count = start.step_count;
      trainer.eight_bit_scales = start.eight_bit_scales;
      trainer.restored();
    }
    std::vector<double> losses;
    std::vector<double> norms;
    for (int i = 0; i < steps; ++i) {
      const StepReport report = trainer.step();
      losses.push_back(report.loss);
      norms.push_back(report.norm);
    }
    trainer.fetch();
    const std::lock_guard lock(mutex);
    if (communicator.rank() == 0) {
      course = {losses,          norms,          trainer.step_count,
                trainer.weights, trainer.states, trainer.eight_bit_scales};
      course.besides = communicator.besides;
    }
  };
  in_threads(std::max(world, 1), run, late);
  return course;
}

double difference(const std::vector<float>& a, const std::vector<float>& b) {
  return relative_error(std::vector<double>(a.begin(), a.end()),
                        std::vector<double>(b.begin(), b.end()));
}

ModelTrainSettings settings_of(DType storage, int64_t accumulate) {
  ModelTrainSettings settings = tiny_settings();
  // Of some 140 rows of the update's matrices, so that each of up to three processes has some.
  LlamaConfig& config = std::get<LlamaConfig>(settings.model);
  config.vocab = 1500;
  config.mlp = 64;  // rows of one span
  settings.storage = storage;
  settings.batch = 6;
  settings.accumulate = accumulate;
  settings.clip = 0.5;  // below the norm of the first steps
  return settings;
}

// Adam divides by the size of a gradient, so the first steps turn a rounding of a small one into a
// step of full length.
TEST(SeveralProcesses, HaveTheTrajectoryOfOne) {
  for (const DType storage : {DType::f32, DType::bf16}) {
    const double tolerance = storage == DType::f32 ? 1e-4 : 2e-2;
    for (const int64_t accumulate : {1, 2}) {
      ModelTrainSettings settings = settings_of(storage, accumulate);
      if (accumulate == 2) settings.optimizer = make_optimizer("adamw", {}, storage);
      const Trajectory one = trained(settings, 0, 3);
      for (const int world : {1, 2, 3}) {
        SCOPED_TRACE(std::string(name_of(storage)) + ", " + std::to_string(world));
        const Trajectory several = trained(settings, world, 3);
        for (size_t i = 0; i < one.losses.size(); ++i) {
          EXPECT_NEAR(several.losses[i], one.losses[i], tolerance * one.losses[i]);
          EXPECT_NEAR(several.norms[i], one.norms[i], tolerance * one.norms[i]);
        }
        for (size_t i = 0; i < one.weights.size(); ++i) {
          EXPECT_LT(difference(several.weights[i].values, one.weights[i].values), 10 * tolerance)
              << one.weights[i].name;
          EXPECT_LT(difference(several.states[i].at("m"), one.states[i].at("m")), 10 * tolerance);
          EXPECT_LT(difference(several.states[i].at("v"), one.states[i].at("v")), 20 * tolerance);
          EXPECT_EQ(several.weights[i].bf16.empty(), one.weights[i].bf16.empty());
        }
      }
    }
  }
}

// Gradients of several are added up before their norm is taken.
TEST(SeveralProcesses, TakeSquaresFromThePlanOfOneAlone) {
  const Tokens text = counting_text(500);
  for (const int world : {0, 1, 2}) {
    std::atomic<int> squares = 0;
    const auto run = [&](ThreadCommunicator& communicator) {
      const auto backend = cpu::make_cpu_backend({.threads = 1});
      ModelTrainSettings settings = settings_of(DType::f32, 1);
      settings.communicator = world == 0 ? nullptr : &communicator;
      const ModelTrainer trainer(settings, text, *backend);
      for (const PlanTensor& t : trainer.session().plan().tensors)
        squares += t.decl.name.starts_with(squares_name("")) ? 1 : 0;
    };
    in_threads(std::max(world, 1), run);
    // The two layers' down projections.
    EXPECT_EQ(squares, world == 1 ? 2 : 0) << world;
  }
}

void expect_same(const Trajectory& a, const Trajectory& b) {
  EXPECT_EQ(a.losses, b.losses);
  EXPECT_EQ(a.norms, b.norms);
  ASSERT_EQ(a.weights.size(), b.weights.size());
  for (size_t i = 0; i < a.weights.size(); ++i) {
    EXPECT_EQ(a.weights[i].values, b.weights[i].values) << a.weights[i].name;
    EXPECT_EQ(a.weights[i].bf16, b.weights[i].bf16) << a.weights[i].name;
    EXPECT_EQ(a.states[i].at("m"), b.states[i].at("m")) << a.weights[i].name;
    EXPECT_EQ(a.states[i].at("v"), b.states[i].at("v")) << a.weights[i].name;
  }
  EXPECT_EQ(a.eight_bit_scales, b.eight_bit_scales);
}

TEST(SeveralProcesses, GiveTheSameBitsEachTimeAndFromARestoredState) {
  for (const EightBits eight : {EightBits::none, EightBits::fp8}) {
    ModelTrainSettings settings = settings_of(DType::bf16, 2);
    settings.eight_bits = eight;
    if (eight != EightBits::none) settings.optimizer = make_optimizer("adamw", {}, DType::bf16);
    const Trajectory whole = trained(settings, 3, 6);
    expect_same(whole, trained(settings, 3, 6));
    const Trajectory half = trained(settings, 3, 3);
    Trajectory resumed = trained(settings, 3, 3, half);
    resumed.losses.insert(resumed.losses.begin(), half.losses.begin(), half.losses.end());
    resumed.norms.insert(resumed.norms.begin(), half.norms.begin(), half.norms.end());
    expect_same(whole, resumed);
  }
}

// Who binds a trainer's parameters reads the same weights in each process between two steps, though
// a step leaves some to be gathered under the next one; and asking for them changes nothing.
TEST(SeveralProcesses, HaveWholeWeightsBetweenSteps) {
  for (const DType storage : {DType::f32, DType::bf16}) {
    ModelTrainSettings settings = settings_of(storage, 1);
    std::get<LlamaConfig>(settings.model).layers = 5;
    const Tokens text = counting_text(500);
    std::mutex mutex;
    std::vector<std::vector<float>> seen;  // by process: all weights after two steps
    std::vector<double> losses;
    const auto run = [&](ThreadCommunicator& communicator) {
      const auto backend = cpu::make_cpu_backend({.threads = 1});
      ModelTrainSettings its = settings;
      its.communicator = &communicator;
      ModelTrainer trainer(its, text, *backend);
      const TensorMap bound = trainer.parameters();
      trainer.step();
      trainer.gather_weights();
      trainer.step();
      trainer.gather_weights();
      std::vector<float> own;
      for (const auto& [name, tensor] : bound) {
        const std::vector<float> values = tensor.floats();
        own.insert(own.end(), values.begin(), values.end());
      }
      const double loss = trainer.step().loss;
      const std::lock_guard lock(mutex);
      seen.push_back(own);
      losses.push_back(loss);
    };
    in_threads(3, run, true);
    EXPECT_EQ(seen[0], seen[1]);
    EXPECT_EQ(seen[0], seen[2]);
    EXPECT_EQ(losses[0], trained(settings, 3, 3).losses[2]);
  }
}

// Gradients are exchanged beside the backward once nothing touches them any more, weights are
// gathered beside the update or under the next forward: neither when nor how much at once makes a
// difference.
TEST(SeveralProcesses, GiveTheSameBitsWheneverTheyExchange) {
  for (const DType storage : {DType::f32, DType::bf16}) {
    ModelTrainSettings settings = settings_of(storage, storage == DType::f32 ? 1 : 2);
    std::get<LlamaConfig>(settings.model).layers = 5;
    const int world = storage == DType::f32 ? 2 : 3;
    settings.exchange_bytes = INT64_MAX;  // all behind the backward
    const Trajectory behind = trained(settings, world, 3);
    for (const int64_t bytes : {0, 60'000}) {
      SCOPED_TRACE(std::string(name_of(storage)) + ", " + std::to_string(bytes));
      settings.exchange_bytes = bytes;
      const Trajectory at_once = trained(settings, world, 3);
      EXPECT_GT(at_once.besides, behind.besides);
      expect_same(at_once, behind);
      expect_same(trained(settings, world, 3, {}, true), behind);
    }
  }
}

// The state is copied while the next step is under way: its update waits for the copies, whoever
// waits for them first.
TEST(SeveralProcesses, GoOnWhileTheStateOfOneIsCopied) {
  for (const DType moments : {DType::f32, DType::bf16}) {
    ModelTrainSettings settings = settings_of(DType::bf16, 1);
    settings.optimizer = make_optimizer("adamw", {}, moments);
    const Trajectory whole = trained(settings, 1, 2);
    for (const bool waits_first : {true, false}) {
      ThreadGroup group(1);
      ThreadCommunicator communicator(group, 0);
      settings.communicator = &communicator;
      const Tokens text = counting_text(500);
      LateCopies backend;
      ModelTrainer trainer(settings, text, backend);
      for (int i = 0; i < 2; ++i) trainer.step();
      const std::function<void()> fetched = trainer.start_fetch();
      if (waits_first) fetched();
      trainer.step();
      fetched();
      for (size_t i = 0; i < whole.weights.size(); ++i) {
        EXPECT_EQ(trainer.weights[i].values, whole.weights[i].values) << whole.weights[i].name;
        EXPECT_EQ(trainer.weights[i].bf16, whole.weights[i].bf16) << whole.weights[i].name;
        EXPECT_EQ(trainer.states[i].at("m"), whole.states[i].at("m")) << whole.weights[i].name;
        EXPECT_EQ(trainer.states[i].at("v"), whole.states[i].at("v")) << whole.weights[i].name;
      }
      trainer.fetch();
      EXPECT_NE(trainer.weights[0].values, whole.weights[0].values);
    }
    settings.communicator = nullptr;
  }
}

// Each process's share is copied while the next step is under way, and reaches rank 0 whenever that
// asks for it, also before the others wait for their copies.
TEST(SeveralProcesses, GoOnWhileTheirStateIsCopied) {
  for (const DType moments : {DType::f32, DType::bf16}) {
    ModelTrainSettings settings = settings_of(DType::bf16, 1);
    settings.optimizer = make_optimizer("adamw", {}, moments);
    const Trajectory whole = trained(settings, 3, 2);
    const Trajectory later = trained(settings, 3, 3);
    for (const bool waits_first : {true, false}) {
      const Tokens text = counting_text(500);
      std::latch of_rank_0(1);
      const auto run = [&](ThreadCommunicator& communicator) {
        LateCopies backend;
        ModelTrainSettings its = settings;
        its.communicator = &communicator;
        ModelTrainer trainer(its, text, backend);
        for (int i = 0; i < 2; ++i) trainer.step();
        const std::function<void()> fetched = trainer.start_fetch();
        if (waits_first) {
          if (communicator.rank() > 0) of_rank_0.wait();
          fetched();
          if (communicator.rank() == 0) of_rank_0.count_down();
        }
        trainer.step();
        if (communicator.rank() > 0) return trainer.fetch();
        const auto expect_state = [&](const Trajectory& course) {
          for (size_t i = 0; i < course.weights.size(); ++i) {
            const WeightTensor& w = course.weights[i];
            EXPECT_EQ(trainer.weights[i].values, w.values) << w.name;
            EXPECT_EQ(trainer.weights[i].bf16, w.bf16) << w.name;
            EXPECT_EQ(trainer.states[i].at("m"), course.states[i].at("m")) << w.name;
            EXPECT_EQ(trainer.states[i].at("v"), course.states[i].at("v")) << w.name;
          }
        };
        fetched();
        expect_state(whole);
        trainer.fetch();
        expect_state(later);
      };
      in_threads(3, run);
    }
  }
}

// What rank 1 of two is refused for, where it has another setting than rank 0.
std::string difference_in(const std::function<void(ModelTrainSettings&)>& change,
                          const Tokens& text) {
  std::string said;
  in_threads(2, [&](ThreadCommunicator& communicator) {
    const auto backend = cpu::make_cpu_backend({.threads = 1});
    ModelTrainSettings settings = settings_of(DType::bf16, 2);
    settings.communicator = &communicator;
    const bool is_other = communicator.rank() == 1;
    if (is_other) change(settings);
    static const Tokens usual = counting_text(501);
    std::string error = "no error";
    try {
      const ModelTrainer trainer(settings, is_other ? text : usual, *backend);
    } catch (const Error& refused) {
      error = refused.what();
    }
    if (communicator.rank() == 0) said = error;
  });
  return said;
}

// Every setting that makes steps of a run what they are.
TEST(SeveralProcesses, AreComparedAtTheStart) {
  using S = ModelTrainSettings;
  const auto config = [](S& s) -> LlamaConfig& { return std::get<LlamaConfig>(s.model); };
  const std::pair<const char*, std::function<void(S&)>> cases[] = {
      {"no error", [](S&) {}},
      {"parameters", [&](S& s) { config(s).layers += 1; }},
      {"parameters", [&](S& s) { config(s).mlp *= 2; }},
      {"storage", [](S& s) { s.storage = DType::f32; }},
      {"eight_bits", [](S& s) { s.eight_bits = EightBits::fp8; }},
      {"sizes", [](S& s) { s.batch = 4; }},
      {"sizes", [](S& s) { s.sequence /= 2; }},
      {"accumulate", [](S& s) { s.accumulate = 3; }},
      {"objective", [](S& s) { s.objective = Objective::speed; }},
      {"recomputed_layers", [](S& s) { s.recomputed_layers = 1; }},
      {"loss_rows", [](S& s) { s.loss_rows = 64; }},
      {"weights", [](S& s) { s.seed += 1; }},
      {"schedule", [](S& s) { s.schedule.peak *= 2; }},
      {"schedule", [](S& s) { s.schedule.floor /= 2; }},
      {"schedule", [](S& s) { s.schedule.warmup_steps += 1; }},
      {"schedule", [](S& s) { s.schedule.total_steps += 1; }},
      {"optimizer", [](S& s) { s.optimizer = make_optimizer("lion"); }},
      {"optimizer", [](S& s) { s.optimizer.formulas += "  more = w1\n"; }},
      {"optimizer", [](S& s) { s.optimizer = make_optimizer("adamw", {{"beta1", 0.8}}); }},
      {"optimizer", [](S& s) { s.optimizer = make_optimizer("adamw", {{"beta2", 0.91}}); }},
      {"optimizer", [](S& s) { s.optimizer = make_optimizer("adamw", {{"adam-eps", 1e-7}}); }},
      {"optimizer", [](S& s) { s.optimizer = make_optimizer("adamw", {{"decay", 0.2}}); }},
      {"optimizer", [](S& s) { s.optimizer = make_optimizer("adamw", {}, DType::bf16); }},
      {"clip", [](S& s) { s.clip = 0.25; }},
      {"exchange_bytes", [](S& s) { s.exchange_bytes = 60'000; }},
      {"model", [&](S& s) { config(s).eps *= 2; }},
  };
  const Tokens usual = counting_text(501);
  ASSERT_NE(usual.bytes.size() % sizeof(uint64_t), 0) << "the digest's last word is cut";
  for (const auto& [name, change] : cases)
    EXPECT_THAT(difference_in(change, usual), HasSubstr(name));
  EXPECT_THAT(difference_in([](S&) {}, counting_text(500)), HasSubstr("tokens to train on"));
  // The last byte, and one in the middle of a word of the digest.
  for (const int64_t place : {int64_t{3}, usual.size() - 1}) {
    Tokens other = usual;
    std::vector<std::byte> bytes(usual.bytes.begin(), usual.bytes.end());
    bytes[static_cast<size_t>(place)] ^= std::byte{1};
    other.bytes = bytes;
    EXPECT_THAT(difference_in([](S&) {}, other), HasSubstr("data (digest)"));
  }
}

// Includes SGD without momentum, which has no state to divide among the processes.
TEST(SeveralProcesses, HaveTheTrajectoryOfOneWithEachOptimizer) {
  ModelTrainSettings settings = settings_of(DType::bf16, 1);
  settings.schedule.peak = 1e-3;
  for (const Optimizer& optimizer : {make_optimizer("lion", {}, DType::bf16), make_optimizer("sgd"),
                                     make_optimizer("sgd", {{"momentum", 0}})}) {
    settings.optimizer = optimizer;
    const Trajectory one = trained(settings, 0, 2);
    const Trajectory several = trained(settings, 2, 2);
    EXPECT_NEAR(several.losses[1], one.losses[1], 2e-2 * one.losses[1]) << text(optimizer);
    for (size_t i = 0; i < one.weights.size(); ++i) {
      EXPECT_LT(difference(several.weights[i].values, one.weights[i].values), 0.05)
          << one.weights[i].name << ", " << text(optimizer);
      EXPECT_EQ(several.states[i].size(), optimizer.states.size());
    }
  }
}

TEST(SeveralProcesses, AreComparedByWhatStaysIn16Bits) {
  std::string values[2];
  for (const bool is_other : {false, true}) {
    TrainOptions options;
    options.eight_bits = EightBits::fp8;
    if (is_other) options.eight_bits_except = {"*head*"};
    for (const Setting& setting : compared_settings(options, Weights(), cpu_rates()))
      if (setting.name == "eight_bits_except") values[is_other] = setting.value;
  }
  EXPECT_EQ(values[0], "");
  EXPECT_EQ(values[1], "*head*");
}

// On a mix of GPUs each would make a plan of its own.
TEST(SeveralProcesses, AreComparedByTheirKindOfGpu) {
  const auto kind = [](const Rates& rates) {
    for (const Setting& setting : compared_settings(TrainOptions(), Weights(), rates))
      if (setting.name.starts_with("kind of GPU")) return setting.value;
    return std::string();
  };
  Rates other = h200_rates();
  other.bytes_per_second /= 2;
  EXPECT_NE(kind(other), kind(h200_rates()));
  EXPECT_EQ(kind(h200_rates()), "7e+14, 4.28e+12");
}

TEST(SeveralProcesses, AreComparedWhereTheyGoOn) {
  ModelTrainSettings settings = settings_of(DType::bf16, 1);
  settings.eight_bits = EightBits::fp8;
  const Trajectory half = trained(settings, 2, 2);
  const auto difference = [&](const std::function<void(Trajectory&)>& change) {
    std::string said;
    in_threads(2, [&](ThreadCommunicator& communicator) {
      const Tokens text = counting_text(500);
      const auto backend = cpu::make_cpu_backend({.threads = 1});
      ModelTrainSettings its = settings;
      its.communicator = &communicator;
      ModelTrainer trainer(its, text, *backend);
      Trajectory course = half;
      if (communicator.rank() == 1) change(course);
      trainer.weights = course.weights;
      trainer.states = course.states;
      trainer.step_count = course.step_count;
      trainer.eight_bit_scales = course.eight_bit_scales;
      std::string error = "no error";
      try {
        trainer.restored();
      } catch (const Error& refused) {
        error = refused.what();
      }
      if (communicator.rank() == 0) said = error;
    });
    return said;
  };
  EXPECT_EQ(difference([](Trajectory&) {}), "no error");
  EXPECT_THAT(difference([](Trajectory& c) { c.step_count += 1; }), HasSubstr("steps done"));
  EXPECT_THAT(difference([](Trajectory& c) { c.weights.back().values.back() += 1e-3F; }),
              HasSubstr("weights"));
  EXPECT_THAT(difference([](Trajectory& c) { c.states[1].at("m").back() += 1e-3F; }),
              HasSubstr("states"));
  EXPECT_THAT(difference([](Trajectory& c) { c.states[0].at("v")[0] += 1e-3F; }),
              HasSubstr("states"));
  EXPECT_THAT(difference([](Trajectory& c) { c.eight_bit_scales[0] *= 2; }), HasSubstr("scales"));
}

// A process that gives up does not wait until rank 0 takes its state.
TEST(SeveralProcesses, GiveUpThoughNobodyTakesTheirState) {
  const Tokens text = counting_text(500);
  ThreadGroup group(2);
  const auto trainer_of = [&](ThreadCommunicator& communicator, Backend& backend) {
    ModelTrainSettings settings = settings_of(DType::bf16, 1);
    settings.communicator = &communicator;
    return ModelTrainer(settings, text, backend);
  };
  std::string said;
  std::thread second([&] {
    ThreadCommunicator communicator(group, 1);
    const auto backend = cpu::make_cpu_backend({.threads = 1});
    try {
      ModelTrainer trainer = trainer_of(communicator, *backend);
      trainer.step();
      trainer.start_fetch();
      throw Error("it gives up");
    } catch (const Error& error) {
      said = error.what();
    }
  });
  ThreadCommunicator communicator(group, 0);
  const auto backend = cpu::make_cpu_backend({.threads = 1});
  ModelTrainer trainer = trainer_of(communicator, *backend);
  trainer.step();
  trainer.start_fetch();
  second.join();
  EXPECT_EQ(said, "it gives up");
  group.close();
  EXPECT_THROW(trainer.fetch(), Error);
}

// In each process the copies of weights in 8 bits are those of the gathered weights, whenever they
// are gathered.
TEST(SeveralProcesses, HaveTheCopiesOfTheirNewWeights) {
  const Tokens text = counting_text(500);
  ModelTrainSettings settings = settings_of(DType::bf16, 2);
  settings.model = tiny_model_of_wide_rows();
  std::get<LlamaConfig>(settings.model).layers = 3;
  settings.sequence = 32;
  ModelTrainSettings one = settings;
  one.batch = 3;  // each of two processes has as many
  settings.eight_bits = one.eight_bits = EightBits::fp8;
  for (const int64_t bytes : {int64_t{0}, INT64_MAX}) {  // gathered in the forward, in the update
    settings.exchange_bytes = bytes;
    std::mutex mutex;
    Trajectory course;
    std::vector<std::map<std::string, std::vector<std::byte>>> copies;
    const auto run = [&](ThreadCommunicator& communicator) {
      const auto backend = cpu::make_cpu_backend({.threads = 1});
      ModelTrainSettings its = settings;
      its.communicator = &communicator;
      ModelTrainer trainer(its, text, *backend);
      for (int i = 0; i < 2; ++i) trainer.step();
      trainer.fetch();
      const std::lock_guard lock(mutex);
      copies.push_back(given_copies(trainer, *backend));
      if (communicator.rank() > 0) return;
      course.weights = trainer.weights;
      course.states = trainer.states;
      course.eight_bit_scales = trainer.eight_bit_scales;
    };
    in_threads(2, run, true);
    const auto backend = cpu::make_cpu_backend({.threads = 1});
    ModelTrainer alone(one, text, *backend);
    alone.weights = course.weights;
    alone.states = course.states;
    alone.eight_bit_scales = course.eight_bit_scales;
    alone.restored();
    const auto expected = given_copies(alone, *backend);
    EXPECT_GT(expected.size(), 12U);
    ASSERT_EQ(copies.size(), 2U);
    for (const auto& its : copies) EXPECT_EQ(its, expected);
  }
}

TEST(SeveralProcesses, WriteNoStateThatIsNotFinite) {
  const TempFolder folder;
  const Tokens text = counting_text(500);
  const auto backend = cpu::make_cpu_backend({.threads = 1});
  const ModelTrainSettings settings = settings_of(DType::f32, 1);
  ModelTrainer trainer(settings, text, *backend);
  trainer.step();
  const auto write = checkpoint_writer(folder.path(), settings.model, trainer, {});
  trainer.weights[0].values[5] = std::numeric_limits<float>::infinity();
  try {
    write();
    FAIL() << "it was written";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("after step 1: the values of"));
  }
  EXPECT_FALSE(newest_checkpoint(folder.path()).has_value());
}

// What is written is the state as it was fetched, however many steps have followed.
TEST(SeveralProcesses, GoOnWhileTheirCheckpointIsWritten) {
  const TempFolder folder;
  const ModelTrainSettings settings = settings_of(DType::bf16, 1);
  const Tokens text = counting_text(500);
  const auto run = [&](ThreadCommunicator& communicator) {
    const auto backend = cpu::make_cpu_backend({.threads = 1});
    ModelTrainSettings its = settings;
    its.communicator = &communicator;
    ModelTrainer trainer(its, text, *backend);
    EXPECT_TRUE(trainer.fetches_copies());
    for (int i = 0; i < 2; ++i) trainer.step();
    trainer.fetch();
    std::function<std::filesystem::path()> write;
    if (communicator.rank() == 0)
      write = checkpoint_writer(folder.path(), settings.model, trainer, {});
    for (int i = 0; i < 2; ++i) trainer.step();
    if (write) {
      EXPECT_EQ(write().filename(), "step-000002");
    }
  };
  in_threads(2, run);
  const Trajectory whole = trained(settings, 2, 2);
  const auto backend = cpu::make_cpu_backend({.threads = 1});
  ModelTrainer restored(settings, text, *backend);
  EXPECT_FALSE(restored.fetches_copies());
  EXPECT_EQ(restore(folder / "step-000002", restored).step, 2);
  for (size_t i = 0; i < whole.weights.size(); ++i) {
    EXPECT_EQ(restored.weights[i].values, whole.weights[i].values) << whole.weights[i].name;
    EXPECT_EQ(restored.states[i].at("m"), whole.states[i].at("m"));
    EXPECT_EQ(restored.states[i].at("v"), whole.states[i].at("v"));
  }
}

TEST(SeveralProcesses, ARunGoesOnWithAnotherNumber) {
  const ModelTrainSettings settings = settings_of(DType::f32, 1);
  const Trajectory whole = trained(settings, 2, 6);
  const Trajectory half = trained(settings, 2, 3);
  for (const int world : {1, 3}) {
    const Trajectory resumed = trained(settings, world, 3, half);
    for (size_t i = 0; i < resumed.losses.size(); ++i)
      EXPECT_NEAR(resumed.losses[i], whole.losses[i + 3], 1e-3 * whole.losses[i + 3]);
    for (size_t i = 0; i < whole.weights.size(); ++i) {
      EXPECT_LT(difference(resumed.weights[i].values, whole.weights[i].values), 1e-3)
          << whole.weights[i].name;
    }
  }
}

// x * w is to be t, of 4 rows; of `e` the loss depends, and no gradient.
struct Line {
  Graph graph;
  Value x = graph.input("x", {"M", 1});
  Value t = graph.input("t", {"M", 1});
  Value e = graph.input("e", {"M", 1});
  Value w = graph.parameter("w", {1, 1}, DType::f32);
  Value d = linear(x, w) - t;
  Value loss = col_sum(d * d + e) * graph.reciprocal_dim("M");
};

TensorMap rows_of(float x, float t, float e = 0) {
  TensorMap batch;
  for (const char* name : {"x", "t", "e"}) batch.emplace(name, Tensor(DType::f32, 4, 1));
  batch.at("e").fill(e);
  batch.at("x").fill(x);
  batch.at("t").fill(t);
  return batch;
}

// One process's data are bad: all say so at the same step, and none has changed its weights.
TEST(SeveralProcesses, WhatIsNotFiniteInOneStopsAll) {
  std::mutex mutex;
  int refused = 0;
  in_threads(2, [&](Communicator& communicator) {
    const auto backend = cpu::make_cpu_backend({.threads = 1});
    const Line line;
    TrainOptions options;
    options.sizes = {{"M", 4}};
    options.schedule = {.peak = 0.1, .floor = 0.1, .warmup_steps = 0, .total_steps = 10};
    options.communicator = &communicator;
    Trainer trainer(line.graph, line.loss, initial_weights(line.graph, 1), *backend, options);
    const TensorMap batch = rows_of(1, static_cast<float>(communicator.rank()));
    const double held_out = trainer.loss(batch);
    const StepReport first = trainer.step(batch);
    const float w = initial_weights(line.graph, 1)[0].values[0];
    EXPECT_NEAR(first.loss, (w * w + (w - 1) * (w - 1)) / 2, 1e-6);  // of both
    EXPECT_NEAR(held_out, first.loss, 1e-6);
    EXPECT_FALSE(first.asks_to_stop);
    const double before = trainer.loss(rows_of(1, 2));
    std::string refusal;
    try {
      trainer.step(rows_of(1, 0, communicator.rank() == 1 ? INFINITY : 0));
    } catch (const Error& error) {
      refusal = error.what();
    }
    EXPECT_EQ(trainer.step_count, 1);
    EXPECT_EQ(trainer.loss(rows_of(1, 2)), before);
    for (const int asks : {1, 0}) {
      trainer.asks_to_stop = communicator.rank() == asks;
      EXPECT_TRUE(trainer.step(rows_of(1, 0)).asks_to_stop) << asks;
    }
    const std::lock_guard lock(mutex);
    if (refusal.find("step 2: the loss is not finite") != std::string::npos) ++refused;
  });
  EXPECT_EQ(refused, 2);
}

TEST(SeveralProcesses, NeedABatchThatTheyCanShare) {
  ThreadGroup group(4);
  ThreadCommunicator communicator(group, 0);
  ModelTrainSettings settings = tiny_settings();
  settings.communicator = &communicator;
  settings.batch = 6;
  try {
    settings.own_batch();
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("6 sequences cannot be divided among 4 processes"));
  }
}

}  // namespace
}  // namespace coda
