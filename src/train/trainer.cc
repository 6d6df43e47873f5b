// SPDX-License-Identifier: Apache-2.0
#include "coda/trainer.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <set>

#include "base/memory_error.h"
#include "coda/error.h"
#include "coda/gradient_clip.h"
#include "coda/messages.h"
#include "coda/step_memory.h"
#include "train/compared_settings.h"
#include "train/device_update.h"
#include "train/gradient_session.h"

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
  check_adamw(options.adamw);
  require(options.accumulate >= 1,
          "a step has at least one pass, not " + std::to_string(options.accumulate));
  require(options.clip >= 0, "the largest norm of the gradients must be a number from 0, not " +
                                 std::to_string(options.clip));
  check_step(graph, loss, weights);
}

// The weights are there already.
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
  std::string exchange_text;
  // Where the backend has memory of its own, or several processes train.
  std::unique_ptr<DeviceUpdate> device;
  GradientSession session;
  struct Started {
    int64_t step = 0;
    StepReport report;               // whole on the host, else without what `numbers` will have
    BackendMemory numbers;           // fp32: what processes said, then the norm
    std::function<void()> is_there;  // waits for them
  };
  std::deque<Started> started;  // the oldest first
  Profiler* profiler = nullptr;
  // Waits until the trainer's fields are the backend's state; null: they are another.
  std::function<void()> fetched;

  Impl(const Graph& graph, Compiled compiled, const Weights& weights, Backend& backend,
       const TrainOptions& options)
      : options(options),
        backend(backend),
        device(backend.is_on_host() && options.communicator == nullptr
                   ? nullptr
                   : make_update(compiled, weights)),
        session(graph, std::move(compiled), weights, backend, options,
                device ? device->gradients() : GradientMemory()) {
    if (!device) return;
    session.bind_squares(device->squares());
    session.bind_weights(device->parameters());
    device->bind_copies([this](const std::string& name) { return session.session().view(name); },
                        [this] {
                          if (session.scales() == nullptr) return;
                          session.scales()->finish_step(device->is_sound());
                          session.scales()->start_copies();
                        });
  }

  // Of one process the plan's programs leave squares for the norm; gradients of several are added
  // up first.
  std::unique_ptr<DeviceUpdate> make_update(Compiled& compiled, const Weights& weights) {
    const std::set<std::string> squared =
        world() == 1 ? leave_squares(compiled.plan, names_of(weights)) : std::set<std::string>();
    const ExchangePlan exchange =
        exchange_plan(compiled, exchanged_parameters(weights), world(), options.exchange_bytes);
    if (world() > 1) exchange_text = exchange.text();
    if (options.communicator != nullptr)
      options.communicator->require_same(compared_settings(exchange));
    return std::make_unique<DeviceUpdate>(backend, weights, options.adamw, options.clip, exchange,
                                          squared, compiled.parameter_copies, options.communicator);
  }

  void gather_weights() {
    if (device) device->gather_weights();
  }

  void clear_gradients() {
    if (options.accumulate == 1) return;
    if (device) return device->clear_gradients();
    for (Tensor gradient : session.gradients()) gradient.fill(0);
  }

  // The first batch tells the scales of 8-bit operands; no weight changes.
  void learn_scales(const TensorMap& batch, bool has_backward) {
    gather_weights();
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

  // The mean of what all processes have.
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
    if (device) device->profile(its);
  }
  void on_host(const char* what, const std::function<void()>& work) const {
    run_profiled(profiler, ProfileTrack::host, what, work);
  }

  // Nothing here waits for the backend.
  void start(Started& now, const Batches& batch, bool asks_to_stop) {
    fetched = nullptr;
    const auto said = static_cast<size_t>(device->said().size());
    now.numbers = backend.allocate_on_host((said + 1) * sizeof(float), "a step's losses");
    auto* const numbers = reinterpret_cast<float*>(now.numbers.get());
    const auto bring = [&](const Tensor& tensor, size_t place) {
      run_profiled(profiler, ProfileTrack::transfers, "copy the step's results", [&] {
        backend.start_copy_out(
            tensor.view(), dense_view(numbers + place, DType::f32, tensor.rows(), tensor.cols()));
      });
    };
    start_scales(batch);
    clear_gradients();
    device->clear_losses();
    const auto check_loss = [this] { device->check_loss(session.loss()); };
    for (int64_t pass = 0; pass < options.accumulate; ++pass) {
      TensorMap tensors;
      on_host("batch", [&] { tensors = batch(pass); });
      GradientSession::Beside beside{.between = check_loss};
      if (world() > 1 && pass == 0)
        beside.forward = [this](size_t step) { device->gather_before(step); };
      if (world() > 1 && pass == options.accumulate - 1)
        beside.backward = [this](size_t step) { device->exchange_before(step); };
      on_host("launch forward and backward", [&] { session.start_pass(tensors, beside); });
    }
    on_host("launch update", [&] { device->start_step(now.report.rate, now.step, asks_to_stop); });
    bring(device->said(), 0);
    bring(device->norm(), said);
    now.is_there = backend.mark();
  }

  void wait_for(Started& oldest) const {
    on_host("wait", oldest.is_there);
    const auto* const numbers = reinterpret_cast<const float*>(oldest.numbers.get());
    const auto passes = static_cast<double>(options.accumulate * world());
    for (int rank = 0; rank < world(); ++rank) {
      const float* const said = numbers + DeviceUpdate::kSaid * DeviceUpdate::kNumberStride * rank;
      oldest.report.loss += said[DeviceUpdate::loss_sum * DeviceUpdate::kNumberStride] / passes;
      oldest.report.asks_to_stop |=
          said[DeviceUpdate::stop_request * DeviceUpdate::kNumberStride] != 0;
    }
    oldest.report.norm = numbers[device->said().size()];
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
    options.communicator->require_same(compared_settings(options, weights));
  const StepPlace place = {
      backend.is_on_host(), options.communicator == nullptr ? 1 : options.communicator->world(),
      workspace ? *workspace : backend.workspace_bytes(compiled.plan, options.sizes),
      options.adamw.moments};
  const StepMemory memory = step_memory(compiled, options.sizes, place);
  require_free(memory, weights, backend, options);
  try {
    impl_ = std::make_unique<Impl>(graph, std::move(compiled), weights, backend, options);
    moments.resize(weights.size());
    if (!impl_->device)
      for (size_t i = 0; i < weights.size(); ++i) moments[i].make(weights[i]);
    restored();
  } catch (const MemoryError& error) {  // what else takes memory is not known before
    throw MemoryError(std::string(error.what()) + "; a step takes " + memory.text());
  }
}

Trainer::~Trainer() = default;
Trainer::Trainer(Trainer&&) noexcept = default;
Trainer& Trainer::operator=(Trainer&&) noexcept = default;

void Moments::make(const WeightTensor& weight) {
  const std::string what = "a moment of AdamW for " + in_quotes(weight.name);
  for (std::vector<float>* moment : {&m, &v})
    if (moment->empty()) *moment = zeros_for<float>(what, weight.values.size());
}

void Trainer::restored() {
  require_none_started("restored()");
  EightBitScales* scales = impl_->session.scales();
  require(scales != nullptr || eight_bit_scales.empty(),
          "the state has scales of 8-bit operands, and this trainer has no products in 8 bits");
  if (Communicator* all = impl_->options.communicator) all->require_same(compared_state(*this));
  if (scales != nullptr) scales->restore(eight_bit_scales);
  for (WeightTensor& w : weights) w.round();
  if (impl_->device) impl_->device->upload(weights, moments);
  impl_->fetched = [] {};  // the fields are what was uploaded
  // Rank 0 writes checkpoints; the others need no copy of theirs.
  if (impl_->world() > 1 && impl_->options.communicator->rank() > 0)
    for (Moments& its : moments) its = {};
  impl_->session.bind_weights(parameters());
  impl_->session.make_copies();
}

void Trainer::fetch() { start_fetch()(); }

std::function<void()> Trainer::start_fetch() {
  require_none_started("fetch()");
  if (const EightBitScales* scales = impl_->session.scales(); scales != nullptr)
    eight_bit_scales = scales->state();
  if (!impl_->device) return [] {};
  if (!impl_->fetched) impl_->fetched = impl_->device->start_download(weights, moments);
  return impl_->fetched;
}

bool Trainer::fetches_copies() const { return impl_->device != nullptr; }

void Trainer::require_none_started(const char* what) const {
  require(impl_->started.empty(),
          std::string(what) + " while a step is started: call finish_step() before");
}

void Trainer::gather_weights() {
  require_none_started("gather_weights()");
  impl_->gather_weights();
}

TensorMap Trainer::parameters() {
  return impl_->device ? impl_->device->parameters() : tensors_of(weights, impl_->backend);
}

void Trainer::bind(const TensorMap& constants) { impl_->session.bind_constants(constants); }

// Where no step has told the scales of 8-bit operands, this batch does, and is forgotten.
double Trainer::loss(const TensorMap& batch) {
  impl_->gather_weights();
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
  struct Watched {  // no longer, however the step ends
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
  Impl::Started now;
  now.step = step_count + 1;
  now.report.rate = learning_rate(impl_->options.schedule, step_count);
  if (impl_->device) {
    impl_->start(now, batch, asks_to_stop);
  } else {
    run_on_host(batch, now.report);
  }
  impl_->started.push_back(std::move(now));
  ++step_count;
}

StepReport Trainer::finish_step() {
  require(!impl_->started.empty(), "finish_step() where no step is started");
  Impl::Started oldest = std::move(impl_->started.front());
  impl_->started.pop_front();
  if (!impl_->device) return oldest.report;
  impl_->wait_for(oldest);
  try {
    require_finite(oldest.report.loss, "loss", oldest.step);
    require_finite(oldest.report.norm, "gradients' norm", oldest.step);
  } catch (const Error&) {
    impl_->backend.synchronize();
    impl_->started.clear();
    impl_->device->restore_soundness();
    step_count = oldest.step - 1;
    throw;
  }
  return oldest.report;
}

void Trainer::run_on_host(const Batches& batch, StepReport& report) {
  const int64_t passes = impl_->options.accumulate;
  impl_->start_scales(batch);
  impl_->clear_gradients();
  for (int64_t pass = 0; pass < passes; ++pass) {
    TensorMap tensors;
    impl_->on_host("batch", [&] { tensors = batch(pass); });
    double loss = 0;
    impl_->on_host("forward", [&] { loss = impl_->session.forward(tensors); });
    require_finite(loss, "loss", step_count + 1);
    report.loss += loss / static_cast<double>(passes);
    impl_->on_host("backward", [&] { impl_->session.backward(); });
  }
  impl_->on_host("update", [&] { report.norm = update(report.rate); });
  require_finite(report.norm, "gradients' norm", step_count + 1);
  if (EightBitScales* scales = impl_->session.scales(); scales != nullptr) scales->finish_step();
  impl_->session.make_copies();
}

double Trainer::update(double rate) {
  std::vector<std::span<const float>> gradients;
  for (const Tensor& gradient : impl_->session.gradients()) {
    gradients.emplace_back(static_cast<const float*>(gradient.view().data),
                           static_cast<size_t>(gradient.size()));
  }
  double norm = 0;
  run_profiled(impl_->profiler, ProfileTrack::compute, "gradient_norm",
               [&] { norm = global_norm(gradients); });
  if (!std::isfinite(norm)) return norm;
  std::vector<AdamWTensor> tensors;
  for (size_t i = 0; i < weights.size(); ++i) {
    WeightTensor& w = weights[i];
    tensors.push_back({w.values, moments[i].m, moments[i].v, gradients[i], w.bf16, w.decays});
  }
  const TrainOptions& options = impl_->options;
  run_profiled(impl_->profiler, ProfileTrack::compute, "adamw", [&] {
    adamw_step(tensors, options.adamw, rate, step_count + 1, clip_scale(norm, options.clip));
  });
  return norm;
}

const std::string& Trainer::exchange_text() const { return impl_->exchange_text; }

Tensor Trainer::tensor(std::string_view name) const {
  return impl_->session.session().tensor(name);
}

const Session& Trainer::session() const { return impl_->session.session(); }

}  // namespace coda
