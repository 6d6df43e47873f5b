// SPDX-License-Identifier: Apache-2.0
// What a step is said to take is what a trainer then allocates, in a backend's memory and on the
// host; a step that does not fit is refused before anything is allocated, and the settings that
// the message names fit.
#include "coda/step_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <map>
#include <string>

#include "coda/error.h"
#include "coda/model_runner.h"
#include "collective/threads.h"
#include "cpu/cpu_backend.h"
#include "runtime/far_backend.h"
#include "train/tiny_model.h"

namespace coda {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

namespace memory_of_steps {

// Counts what is allocated, and refuses what is beyond `most`.
class CountingBackend : public FarBackend {
 public:
  BackendMemory allocate(size_t bytes, std::string_view what) override {
    allocated += static_cast<int64_t>(bytes);
    if (allocated > most) throw MemoryError("no memory for " + std::string(what));
    return FarBackend::allocate(bytes, what);
  }
  BackendMemory allocate_on_host(size_t bytes, std::string_view what) override {
    on_host[std::string(what)] += static_cast<int64_t>(bytes);
    return FarBackend::allocate_on_host(bytes, what);
  }
  int64_t workspace_bytes(const Plan& plan, const DimValues& sizes) override {
    ++plans;
    return FarBackend::workspace_bytes(plan, sizes);
  }

  int64_t allocated = 0;
  std::map<std::string, int64_t> on_host;
  int64_t most = std::numeric_limits<int64_t>::max();
  int plans = 0;
};

std::string refusal(const std::function<void()>& action) {
  try {
    action();
  } catch (const MemoryError& error) {
    return error.what();
  }
  return "no error";
}

int64_t use_of(const StepMemory& memory, const std::string& what) {
  for (const MemoryUse& use : memory.uses)
    if (use.what == what) return use.bytes;
  ADD_FAILURE() << what;
  return 0;
}

// What follows "--batch " and "--accumulate " in a text.
int64_t number_behind(const std::string& text, const std::string& word) {
  return std::stoll(text.substr(text.find(word) + word.size()));
}

TEST(StepMemory, IsWhatATrainerAllocatesInABackendsMemory) {
  const Tokens text = counting_text(500);
  for (const DType storage : {DType::f32, DType::bf16}) {
    for (const int64_t accumulate : {1, 2}) {
      for (const Objective objective : {Objective::memory, Objective::speed}) {
        ModelTrainSettings settings = tiny_settings();
        settings.storage = storage;
        settings.accumulate = accumulate;
        settings.objective = objective;
        const DType state = objective == Objective::speed ? DType::bf16 : DType::f32;
        settings.optimizer = make_optimizer("adamw", {}, state);
        if (storage == DType::bf16) settings.optimizer.weights = state;
        settings.optimizer.states_on_host = accumulate == 2;
        CountingBackend backend;
        const StepMemory memory = step_memory(settings, backend, false);
        EXPECT_EQ(backend.allocated, 0);
        ModelTrainer trainer(settings, text, backend);
        trainer.step();
        // Numbers of a row each, and sums of squares for the norm, are not in the list.
        EXPECT_LE(memory.bytes(), backend.allocated);
        EXPECT_GE(memory.bytes(), backend.allocated - 64 * 1024) << memory.text();
      }
    }
  }
}

// What the last layers save lies where the first layers' gradients will be. The head's gradient is
// made first, with everything still saved: a third of all here.
TEST(StepMemory, GradientsShareMemoryWithWhatIsSaved) {
  ModelTrainSettings settings = tiny_settings();
  std::get<LlamaConfig>(settings.model).layers = 12;
  CountingBackend backend;
  const StepMemory once = step_memory(settings, backend, false);
  settings.accumulate = 2;  // gradients are added to: they are there all the time
  const StepMemory twice = step_memory(settings, backend, false);
  EXPECT_LT(use_of(once, "gradients"), use_of(twice, "gradients") / 2) << once.text();
  EXPECT_EQ(use_of(once, "saved for the backward"), use_of(twice, "saved for the backward"));
}

// All shards of the state are counted: the smallest takes more than what is allowed here.
TEST(StepMemory, OfSeveralProcessesIsWhatEachAllocates) {
  const Tokens text = counting_text(500);
  in_threads(3, [&](Communicator& communicator) {
    for (const DType master_weights : {DType::f32, DType::bf16}) {
      ModelTrainSettings settings = tiny_settings();
      settings.batch = 3;
      settings.storage = DType::bf16;
      settings.optimizer.weights = master_weights;
      settings.communicator = &communicator;
      CountingBackend backend;
      const StepMemory memory = step_memory(settings, backend, false);
      const ModelTrainer trainer(settings, text, backend);
      EXPECT_NEAR(static_cast<double>(memory.bytes()), static_cast<double>(backend.allocated),
                  96 * 1024)
          << memory.text();
    }
  });
}

// On the host a gradient lies where activations were, unless passes add to it.
TEST(StepMemory, OnTheHostIsWeightsStatesAndTheArena) {
  const auto backend = cpu::make_cpu_backend({.threads = 1});
  const Tokens text = counting_text(500);
  for (const DType storage : {DType::f32, DType::bf16}) {
    ModelTrainSettings settings = tiny_settings();
    settings.storage = storage;
    const StepMemory memory = step_memory(settings, *backend, false);
    ModelTrainer trainer(settings, text, *backend);
    const int64_t parameters = trainer.model().parameter_count();
    EXPECT_EQ(use_of(memory, "optimizer's state"), 8 * parameters);
    EXPECT_EQ(use_of(memory, "gradients"), 0);
    EXPECT_GE(use_of(memory, "weights"), 4 * parameters);
    EXPECT_LE(use_of(memory, "weights"), (storage == DType::f32 ? 4 : 6) * parameters);
    EXPECT_EQ(use_of(memory, "saved for the backward"), trainer.session().saved_bytes());
    EXPECT_EQ(use_of(memory, "temporaries"), trainer.session().arena_bytes());
    // Kernels share the largest block; a smaller one may be left of those before it.
    EXPECT_LE(use_of(memory, "workspace of kernels"), backend->scratch_bytes());
    EXPECT_GE(2 * use_of(memory, "workspace of kernels"), backend->scratch_bytes());
    settings.accumulate = 2;
    EXPECT_GE(use_of(step_memory(settings, *backend, false), "gradients"), 4 * parameters);
    EXPECT_GT(use_of(step_memory(settings, *backend, true), "losses of held-out text"), 0);
  }
}

TEST(StepMemory, AStepThatFitsIsTheTrainersAndPlannedOnce) {
  const Tokens text = counting_text(500);
  const ModelTrainSettings settings = tiny_settings();
  CountingBackend backend;
  FittingStep fitting = fitting_step(settings, backend, true);
  EXPECT_EQ(fitting.memory.text(), step_memory(settings, backend, true).text());
  const int plans = backend.plans;
  ModelTrainer trainer(std::move(fitting.step), text, backend);
  EXPECT_EQ(backend.plans, plans);
  ModelTrainer of_settings(settings, text, backend);
  EXPECT_EQ(backend.plans, plans + 1);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(trainer.step().loss, of_settings.step().loss);
}

TEST(StepMemory, AStepThatDoesNotFitIsRefusedBeforeAnythingIsAllocated) {
  const Tokens text = counting_text(500);
  ModelTrainSettings settings = tiny_settings();
  CountingBackend backend;
  const int64_t needed = step_memory(settings, backend, false).bytes();
  settings.memory_limit = needed;
  EXPECT_EQ(require_memory(settings, backend, false).bytes(), needed);
  settings.memory_limit = needed - 1;
  EXPECT_THAT(refusal([&] { ModelTrainer(settings, text, backend); }),
              AllOf(HasSubstr("not enough memory: a step takes"), HasSubstr("are free")));
  const std::string said = refusal([&] { require_memory(settings, backend, false); });
  EXPECT_THAT(
      said, AllOf(HasSubstr("a step of 4 sequences of 24 tokens takes"), HasSubstr("weights"),
                  HasSubstr("saved for the backward"), HasSubstr("are free; what fits: --batch ")));
  EXPECT_EQ(backend.allocated, 0);
  EXPECT_GT(backend.plans, 0);

  // What it names fits, and the next larger batch does not.
  ModelTrainSettings fits = settings;
  fits.batch = number_behind(said, "--batch ");
  fits.accumulate = number_behind(said, "--accumulate ");
  EXPECT_EQ(fits.batch * fits.accumulate, settings.batch * settings.accumulate);
  EXPECT_LE(require_memory(fits, backend, false).bytes(), settings.memory_limit);
}

TEST(StepMemory, WhereNothingFitsTheMessageSaysSo) {
  ModelTrainSettings settings = tiny_settings();
  CountingBackend backend;
  settings.batch = settings.accumulate = 1;
  const int64_t needed = step_memory(settings, backend, false).bytes();
  EXPECT_THAT(what_fits(settings, backend, false, needed / 2),
              AllOf(HasSubstr("nothing: no batch and no setting takes less than"),
                    HasSubstr("--sequence")));
  settings.memory_limit = 1000;  // not even the weights: nothing is planned
  const int plans = backend.plans;
  EXPECT_THAT(refusal([&] { require_memory(settings, backend, false); }),
              AllOf(HasSubstr("weights"), HasSubstr("1000 bytes are free"),
                    HasSubstr("make the model smaller"), Not(HasSubstr("--batch"))));
  EXPECT_EQ(backend.plans, plans);
}

// Others may take what was free, and some of what a GPU takes is known to nobody before.
TEST(StepMemory, WhereAllocatingFailsTheMessageSaysWhatAStepTakes) {
  const Tokens text = counting_text(500);
  const ModelTrainSettings settings = tiny_settings();
  CountingBackend backend;
  const StepMemory memory = step_memory(settings, backend, false);
  backend.most = memory.bytes() / 2;
  EXPECT_THAT(refusal([&] { ModelTrainer(settings, text, backend); }),
              AllOf(HasSubstr("no memory for "), HasSubstr("a step takes " + memory.text())));
}

// A layer is recomputed right before its backward, so that the others' values are not there.
TEST(StepMemory, OfRecomputedLayersOnlyOneIsThereAtATime) {
  CountingBackend backend;
  const auto of = [&](int layers, bool again) {
    ModelTrainSettings settings = tiny_settings();
    std::get<LlamaConfig>(settings.model).layers = layers;
    settings.recomputed_layers = again ? kAllLayers : 0;
    return step_memory(settings, backend, false);
  };
  EXPECT_EQ(use_of(of(12, true), "temporaries"), use_of(of(8, true), "temporaries"));
  const int64_t layer = use_of(of(9, false), "saved for the backward") -
                        use_of(of(8, false), "saved for the backward");
  EXPECT_LT(use_of(of(12, true), "temporaries"), use_of(of(12, false), "temporaries") + layer);
  EXPECT_LT(use_of(of(12, true), "saved for the backward"),
            use_of(of(12, false), "saved for the backward") / 3);

  // It is named where it fits and no smaller batch does.
  ModelTrainSettings settings = tiny_settings();
  std::get<LlamaConfig>(settings.model).layers = 12;
  settings.batch = 1;
  settings.memory_limit = step_memory(settings, backend, false).bytes() - 1;
  EXPECT_THAT(refusal([&] { require_memory(settings, backend, false); }),
              HasSubstr("what fits: --recompute layer ("));
}

// With two microbatches, because in one what is saved has the memory of gradients.
TEST(StepMemory, OfLayersOnTheHostIsWhatATrainerAllocatesThere) {
  const Tokens text = counting_text(500);
  ModelTrainSettings settings = tiny_settings();
  std::get<LlamaConfig>(settings.model).layers = 12;
  settings.recomputed_layers = kAllLayers;
  settings.accumulate = 2;
  settings.optimizer.states_on_host = true;
  CountingBackend backend;
  const int64_t without = step_memory(settings, backend, false).bytes();
  settings.layers_on_host = true;
  const StepMemory memory = step_memory(settings, backend, false);
  ModelTrainer trainer(settings, text, backend);
  trainer.step();
  EXPECT_LE(memory.bytes(), backend.allocated);
  EXPECT_GE(memory.bytes(), backend.allocated - 64 * 1024) << memory.text();
  ASSERT_EQ(memory.on_host.size(), 2);
  EXPECT_EQ(memory.on_host[0].bytes, backend.on_host["the optimizer's states"]);
  EXPECT_EQ(memory.on_host[1].bytes, backend.on_host["a layer's input"]);
  EXPECT_THAT(memory.text(), HasSubstr(", and of the host's memory "));
  const int64_t stream = 4 * 24 * 32 * 4;  // 4 sequences of 24 tokens in fp32
  EXPECT_EQ(memory.on_host[1].bytes, 10 * stream);
  EXPECT_GE(without - memory.bytes(), 8 * stream);  // a second one exists in each phase

  // It is named once layers are recomputed, alone or after that.
  settings.batch = 1;
  const int64_t needed = step_memory(settings, backend, false).bytes();
  settings.layers_on_host = false;
  EXPECT_THAT(what_fits(settings, backend, false, needed), HasSubstr("--layers-on-host ("));
  settings.recomputed_layers = 0;
  for (OptimizerState& state : settings.optimizer.states) state.dtype = DType::bf16;
  EXPECT_THAT(what_fits(settings, backend, false, needed),
              testing::StartsWith("--recompute layer --layers-on-host ("));
}

// A GPU's settings, alone where one suffices, else as few as possible together.
TEST(StepMemory, TheSettingsOfTheOptimizerAreNamedWhereTheyFit) {
  ModelTrainSettings settings = tiny_settings();
  std::get<LlamaConfig>(settings.model).hidden = 256;
  std::get<LlamaConfig>(settings.model).mlp = 2048;
  std::get<LlamaConfig>(settings.model).layers = 1;
  settings.storage = DType::bf16;
  settings.batch = 1;
  CountingBackend backend;
  const auto bytes_of = [&](const auto& change) {
    ModelTrainSettings changed = settings;
    change(changed);
    return step_memory(changed, backend, false).bytes();
  };
  const auto fit = [&](int64_t bytes) { return what_fits(settings, backend, false, bytes); };
  const auto in_bf16 = [](ModelTrainSettings& s) {
    for (OptimizerState& state : s.optimizer.states) state.dtype = DType::bf16;
  };
  // With master weights in bf16, norms keep fp32 weights, in matrices that have mostly padding.
  const int64_t moments_bytes = bytes_of(in_bf16);
  EXPECT_THAT(fit(moments_bytes + moments_bytes / 20),
              AllOf(HasSubstr("--moments bf16 ("), HasSubstr("or --master-weights bf16 ("),
                    HasSubstr("or --moments-on-host (")));
  settings.optimizer.states_on_host = true;
  EXPECT_THAT(fit(bytes_of([](ModelTrainSettings&) {}) - 1),
              AllOf(HasSubstr("--master-weights bf16"), Not(HasSubstr("--moments-on-host"))));
  const int64_t all = bytes_of([](ModelTrainSettings& s) { s.optimizer.weights = DType::bf16; });
  settings.optimizer.states_on_host = false;
  EXPECT_THAT(fit(all), testing::StartsWith("--recompute layer --moments bf16 --master-weights "
                                            "bf16 --moments-on-host ("));
  EXPECT_THAT(fit(all / 2), HasSubstr("nothing"));

  const auto cpu = cpu::make_cpu_backend({.threads = 1});  // its states stay where they are
  const int64_t on_cpu = step_memory(settings, *cpu, false).bytes();
  EXPECT_THAT(what_fits(settings, *cpu, false, on_cpu - 1),
              AllOf(Not(HasSubstr("--moments")), Not(HasSubstr("--master-weights"))));
}

// Of several processes each has matrices with the settings' types.
TEST(StepMemory, OnTheHostSeveralProcessesAreToldTheTypesThatFit) {
  in_threads(2, [&](Communicator& communicator) {
    ModelTrainSettings settings = tiny_settings();
    settings.batch = 2;
    settings.storage = DType::bf16;
    settings.recomputed_layers = kAllLayers;
    settings.communicator = &communicator;
    const auto cpu = cpu::make_cpu_backend({.threads = 1});
    const int64_t needed = step_memory(settings, *cpu, false).bytes();
    const std::string fits = what_fits(settings, *cpu, false, needed - 1);
    EXPECT_THAT(fits, AllOf(HasSubstr("--moments bf16 ("), HasSubstr("--master-weights bf16 ("),
                            Not(HasSubstr("-on-host"))));
  });
}

// Each process has its part of the optimizer's state and of the master weights, and a bf16 copy of
// all weights.
TEST(StepMemory, OfSeveralProcessesEachHasItsShareOfTheState) {
  LlamaConfig config = std::get<LlamaConfig>(tiny_model());
  config.hidden = 256;  // rows that fill a matrix up are few then
  config.mlp = 8192;
  const ModelTaskGraph task = make_task(
      config, {.task = ModelTask::gradients, .storage = DType::bf16, .batch = 4, .sequence = 24},
      cpu_rates());
  const Compiled compiled = compile(task.model->graph, task.request, task.options);
  const auto of = [&](int processes) {
    return step_memory(compiled, task.options.sizes, {.is_on_host = false, .processes = processes});
  };
  const auto share = [&](const char* what) {
    return static_cast<double>(use_of(of(2), what)) / static_cast<double>(use_of(of(1), what));
  };
  EXPECT_NEAR(share("optimizer's state"), 0.5, 0.02);
  EXPECT_NEAR(share("weights"), 4.0 / 6, 0.03);  // 4 / 2 + 2 bytes of 4 + 2
  EXPECT_NEAR(share("gradients"), 1, 0.04);
  EXPECT_EQ(use_of(of(2), "saved for the backward"), use_of(of(1), "saved for the backward"));
}

}  // namespace memory_of_steps
}  // namespace
}  // namespace coda
