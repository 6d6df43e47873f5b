// SPDX-License-Identifier: Apache-2.0
// Runs the microbatches of a step through a GradientSession, then the update through a StepUpdate.
#include "coda/trainer.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <set>
#include <string_view>

#include "base/memory_error.h"
#include "coda/error.h"
#include "coda/messages.h"
#include "coda/step_memory.h"
#include "train/compared_settings.h"
#include "train/gradient_session.h"
#include "train/rounding_noise.h"
#include "train/step_update.h"
#include "train/update_programs.h"

namespace coda {
namespace {

constexpr const char* kRemedy =
    " not finite (lower the learning rate, lengthen the warm-up, or look at the data)";

void require_finite(double value, const char* what, int64_t step) {
  require(std::isfinite(value), "step " + std::to_string(step) + ": the " + what + " is" + kRemedy);
}

std::string after_step(int64_t step) { return "after step " + std::to_string(step) + ": "; }

void check(const Graph& graph, Value loss, const Weights& weights, const TrainOptions& options) {
  check_schedule(options.schedule);
  require(options.accumulate >= 1,
          "a step has at least one pass, not " + std::to_string(options.accumulate));
  require(options.clip >= 0, "the largest norm of the gradients must be a number from 0, not " +
                                 std::to_string(options.clip));
  const auto is_bf16 = [](const WeightTensor& w) { return !w.bf16.empty(); };
  require(
      options.optimizer.weights == DType::f32 || std::ranges::any_of(weights, is_bf16),
      "master weights in bf16 are those of parameters that the plan reads in bf16, and the graph "
      "has none");
  std::set<std::string_view> names{kMaster, kGradient, kCopy, kNoise, kNoiseRows};
  for (const OptimizerState& state : options.optimizer.states)
    require(names.insert(state.name).second,
            "the optimizer has two states '" + state.name + "', or that name is reserved");
  check_step(graph, loss, weights);
}

// Checks memory without counting the weights, which are already allocated.
void require_free(const StepMemory& memory, const Weights& weights, Backend& backend,
                  const TrainOptions& options) {
  int64_t needed = memory.bytes();
  if (backend.is_on_host()) {
    for (const WeightTensor& w : weights)
      needed -= std::ssize(w.values) * size_of(DType::f32) + std::ssize(w.bf16) * 2;
  }
  const int64_t free = options.memory_limit > 0 ? options.memory_limit : backend.free_bytes();
  if (needed <= free) return;
  throw MemoryError("not enough memory: a step takes " + memory.text() + "; " +
                    bytes_text(static_cast<double>(free)) +
                    " are free: choose fewer rows in a pass and more passes, or run layers again");
}

std::vector<std::string> names_of(const Weights& weights) {
  std::vector<std::string> names;
  for (const WeightTensor& w : weights) names.push_back(w.name);
  return names;
}

}  // namespace

struct Trainer::Impl {
  TrainOptions options;
  Backend& backend;
  std::unique_ptr<StepUpdate> update;
  GradientSession session;
  struct Started {
    int64_t step = 0;
    std::function<StepReport()> report;  // waits for the step
  };
  std::deque<Started> started;  // oldest first
  Profiler* profiler = nullptr;
  // Waits until the trainer's fields equal the backend's state; null: they differ.
  std::function<void()> fetched;

  Impl(const Graph& graph, Compiled compiled, const Weights& weights, Backend& backend,
       const TrainOptions& options)
      : options(options),
        backend(backend),
        update(make_update(compiled, weights, backend, options)),
        session(graph, std::move(compiled), weights, backend, options, update->gradients()) {
    update->bind(session);
  }

  // Uses the first batch to determine the scales of 8-bit operands; no weight changes.
  void learn_scales(const TensorMap& batch, bool has_backward) {
    update->gather_weights();
    session.scales()->learn([&] {
      session.make_copies();
      session.forward(batch);
      if (has_backward) session.backward();
    });
    session.make_copies();
  }
  void start_scales(const Batches& batch) {
    EightBitScales* scales = session.scales();
    if (scales == nullptr) return;
    if (!scales->are_known()) {
      learn_scales(batch(0), true);
      scales->set_known();
    }
    scales->start_step();
  }

  int world() const { return options.communicator == nullptr ? 1 : options.communicator->world(); }

  // The mean over all processes.
  double mean(double own) {
    if (world() == 1) return own;
    Tensor all(DType::f32, world(), 1, backend);
    std::vector<float> values(static_cast<size_t>(world()));
    values[static_cast<size_t>(options.communicator->rank())] = static_cast<float>(own);
    all.set(values);
    options.communicator->all_gather(all.view());
    double sum = 0;
    for (const float value : all.floats()) sum += value;
    return sum / world();
  }

  void profile(Profiler* its) {
    profiler = its;
    session.profile(its);
    update->profile(its);
  }
  void on_host(const char* what, const std::function<void()>& work) const {
    run_profiled(profiler, ProfileTrack::host, what, work);
  }

  // Never waits for a backend with its own memory.
  std::function<StepReport()> start(const Batches& batch, double rate, int64_t step,
                                    bool asks_to_stop) {
    fetched = nullptr;
    start_scales(batch);
    update->start_microbatches();
    for (int64_t pass = 0; pass < options.accumulate; ++pass) {
      TensorMap tensors;
      on_host("batch", [&] { tensors = batch(pass); });
      const GradientSession::Overlapped work =
          update->overlapped(pass == 0, pass == options.accumulate - 1);
      on_host("launch forward and backward", [&] { session.start_microbatch(tensors, work); });
    }
    std::function<StepReport()> report;
    on_host("launch update", [&] { report = update->start_step(rate, step, asks_to_stop); });
    return report;
  }
};

Trainer::Trainer(const Graph& graph, Value loss, Weights given, Backend& backend,
                 const TrainOptions& options)
    : weights(std::move(given)) {
  check(graph, loss, weights, options);
  start(graph, backend, options,
        compile_step(graph, loss, names_of(weights), options, backend.rates()), std::nullopt);
}

Trainer::Trainer(const Graph& graph, Value loss, Weights given, Backend& backend,
                 const TrainOptions& options, Compiled compiled, std::optional<int64_t> workspace)
    : weights(std::move(given)) {
  check(graph, loss, weights, options);
  start(graph, backend, options, std::move(compiled), workspace);
}

void Trainer::start(const Graph& graph, Backend& backend, const TrainOptions& options,
                    Compiled compiled, std::optional<int64_t> workspace) {
  if (options.communicator != nullptr)
    options.communicator->require_same(compared_settings(options, weights, backend.rates()));
  if (options.eight_bits != EightBits::none) {
    const std::string why = backend.why_no_eight_bits();
    require(why.empty(), why + ". Remedy: train in bf16 (--dtype bf16)");
  }
  const StepPlace place = {
      backend.is_on_host(), options.communicator == nullptr ? 1 : options.communicator->world(),
      workspace ? *workspace : backend.workspace_bytes(compiled.plan, options.sizes),
      options.optimizer};
  const StepMemory memory = step_memory(compiled, options.sizes, place);
  require_free(memory, weights, backend, options);
  try {
    impl_ = std::make_unique<Impl>(graph, std::move(compiled), weights, backend, options);
    states.resize(weights.size());
    restored();
  } catch (const MemoryError& error) {  // other uses of memory are not known in advance
    throw MemoryError(std::string(error.what()) + "; a step takes " + memory.text());
  }
}

Trainer::~Trainer() = default;
Trainer::Trainer(Trainer&&) noexcept = default;
Trainer& Trainer::operator=(Trainer&&) noexcept = default;

void Trainer::restored() {
  require_none_started("restored()");
  EightBitScales* scales = impl_->session.scales();
  require(scales != nullptr || eight_bit_scales.empty(),
          "the state has scales of 8-bit operands, and this trainer has no products in 8 bits");
  if (Communicator* all = impl_->options.communicator) all->require_same(compared_state(*this));
  if (scales != nullptr) scales->restore(eight_bit_scales);
  for (WeightTensor& w : weights) {
    w.round();
    if (!has_master_weights(optimizer(), !w.bf16.empty())) w.widen();
  }
  impl_->update->upload(weights, states);
  impl_->fetched = [] {};  // the fields are what was uploaded
  // Rank 0 writes checkpoints; other ranks need no copy.
  if (impl_->world() > 1 && impl_->options.communicator->rank() > 0)
    for (ParameterState& its : states) its = {};
  impl_->session.bind_weights(parameters());
  impl_->session.make_copies();
}

void Trainer::fetch() { start_fetch()(); }

std::function<void()> Trainer::start_fetch() {
  require_none_started("fetch()");
  if (const EightBitScales* scales = impl_->session.scales(); scales != nullptr)
    eight_bit_scales = scales->state();
  if (!impl_->fetched) impl_->fetched = impl_->update->start_download(weights, states);
  return impl_->fetched;
}

bool Trainer::fetches_copies() const { return impl_->update->has_own_state(); }

void Trainer::require_none_started(const char* what) const {
  require(impl_->started.empty(),
          std::string(what) + " while a step is started: call finish_step() before");
}

void Trainer::gather_weights() {
  require_none_started("gather_weights()");
  impl_->update->gather_weights();
}

TensorMap Trainer::parameters() { return impl_->update->parameters(); }

const Optimizer& Trainer::optimizer() const { return impl_->options.optimizer; }

void Trainer::bind(const TensorMap& constants) { impl_->session.bind_constants(constants); }

// If no step has set the scales of 8-bit operands, uses this batch for them and forgets them.
double Trainer::loss(const TensorMap& batch) {
  impl_->update->gather_weights();
  EightBitScales* scales = impl_->session.scales();
  if (scales == nullptr || scales->are_known()) return impl_->mean(impl_->session.forward(batch));
  impl_->learn_scales(batch, false);
  const double loss = impl_->mean(impl_->session.forward(batch));
  scales->restore({});
  return loss;
}

void Trainer::require_sound(const TensorMap& batch) {
  fetch();
  require_finite_weights(step_count);
  require_sound_loss(batch);
}

void Trainer::require_finite_weights(int64_t step) const {
  for (const WeightTensor& w : weights) {
    bool are_finite = true;
#pragma omp parallel for schedule(static) reduction(&& : are_finite)
    for (size_t i = 0; i < w.values.size(); ++i)
      are_finite = are_finite && std::isfinite(w.values[i]);
    require(are_finite, after_step(step) + "the values of " + w.name + " are" + kRemedy);
  }
}

void Trainer::require_sound_loss(const TensorMap& batch) {
  require(std::isfinite(loss(batch)), after_step(step_count) + "the loss is" + kRemedy);
}

StepReport Trainer::step(const TensorMap& batch) {
  require(impl_->options.accumulate == 1,
          "a step of " + std::to_string(impl_->options.accumulate) +
              " passes needs a batch for each: call step() with a function");
  return step([&batch](int64_t) { return batch; });
}

StepReport Trainer::step(const Batches& batch) {
  require_none_started("step()");
  start_step(batch);
  return finish_step();
}

Trainer::Profiled Trainer::profile(const Batches& batch) {
  require_none_started("profile()");
  Profiler profiler(impl_->backend);
  struct Watched {  // ends in any case
    Impl& impl;
    ~Watched() { impl.profile(nullptr); }
  } const watched{*impl_};
  impl_->profile(&profiler);
  Profiled profiled;
  profiled.report = step(batch);
  profiled.events = profiler.events();
  return profiled;
}

int Trainer::started_steps() const { return static_cast<int>(impl_->started.size()); }

void Trainer::start_step(const Batches& batch) {
  require(started_steps() < kMostStarted, "start_step() with " + std::to_string(kMostStarted) +
                                              " steps started: call finish_step() before");
  const int64_t step = step_count + 1;
  const double rate = learning_rate(impl_->options.schedule, step_count);
  impl_->started.push_back({step, impl_->start(batch, rate, step, asks_to_stop)});
  ++step_count;
}

StepReport Trainer::finish_step() {
  require(!impl_->started.empty(), "finish_step() where no step is started");
  Impl::Started oldest = std::move(impl_->started.front());
  impl_->started.pop_front();
  StepReport report;
  impl_->on_host("wait", [&] { report = oldest.report(); });
  try {
    require_finite(report.loss, "loss", oldest.step);
    require_finite(report.norm, "gradients' norm", oldest.step);
  } catch (const Error&) {
    impl_->backend.synchronize();
    impl_->started.clear();
    impl_->update->restore_finiteness();
    step_count = oldest.step - 1;
    throw;
  }
  return report;
}

const std::string& Trainer::exchange_text() const { return impl_->update->exchange_text(); }

Tensor Trainer::tensor(std::string_view name) const {
  return impl_->session.session().tensor(name);
}

const Session& Trainer::session() const { return impl_->session.session(); }

}  // namespace coda
