// SPDX-License-Identifier: Apache-2.0
#include "coda/trainer.h"

#include <algorithm>
#include <cmath>

#include "base/memory_error.h"
#include "coda/error.h"
#include "coda/gradient_clip.h"
#include "coda/messages.h"
#include "train/device_update.h"
#include "train/gradient_session.h"

namespace coda {
namespace {

constexpr const char* kRemedy =
    " not finite (lower the learning rate, lengthen the warm-up, or look at the data)";

void require_finite(double value, const char* what, int64_t step) {
  require(std::isfinite(value), "step " + std::to_string(step) + ": the " + what + " is" + kRemedy);
}

}  // namespace

struct Trainer::Impl {
  TrainOptions options;
  Backend& backend;
  std::unique_ptr<DeviceUpdate> device;  // where the backend has memory of its own
  GradientSession session;

  Impl(const Graph& graph, Value loss, const Weights& weights, Backend& backend,
       const TrainOptions& options)
      : options(options),
        backend(backend),
        device(backend.is_on_host()
                   ? nullptr
                   : std::make_unique<DeviceUpdate>(backend, weights, options.adamw, options.clip)),
        session(graph, loss, weights, backend, options,
                device ? device->gradients() : std::vector<Tensor>()) {}

  void clear_gradients() {
    if (options.accumulate == 1) return;
    if (device) return device->clear_gradients();
    for (Tensor gradient : session.gradients()) gradient.fill(0);
  }
};

Trainer::Trainer(const Graph& graph, Value loss, Weights given, Backend& backend,
                 const TrainOptions& options)
    : weights(std::move(given)) {
  check_schedule(options.schedule);
  check_adamw(options.adamw);
  require(options.accumulate >= 1,
          "a step has at least one pass, not " + std::to_string(options.accumulate));
  require(options.clip >= 0, "the largest norm of the gradients must be a number from 0, not " +
                                 std::to_string(options.clip));
  impl_ = std::make_unique<Impl>(graph, loss, weights, backend, options);
  for (const WeightTensor& w : weights) {
    const std::string what = "a moment of AdamW for " + in_quotes(w.name);
    moments.push_back(
        {zeros_for<float>(what, w.values.size()), zeros_for<float>(what, w.values.size())});
  }
  restored();
}

Trainer::~Trainer() = default;
Trainer::Trainer(Trainer&&) noexcept = default;
Trainer& Trainer::operator=(Trainer&&) noexcept = default;

void Trainer::restored() {
  for (WeightTensor& w : weights) w.round();
  if (impl_->device) impl_->device->upload(weights, moments);
  impl_->session.bind_weights(parameters());
}

void Trainer::fetch() {
  if (impl_->device) impl_->device->download(weights, moments);
}

TensorMap Trainer::parameters() {
  return impl_->device ? impl_->device->parameters() : tensors_of(weights, impl_->backend);
}

void Trainer::bind(const TensorMap& constants) { impl_->session.bind_constants(constants); }

double Trainer::loss(const TensorMap& batch) { return impl_->session.forward(batch); }

void Trainer::require_sound(const TensorMap& batch) {
  fetch();
  const std::string when = "after step " + std::to_string(step_count) + ": ";
  for (const WeightTensor& w : weights) {
    const bool is_finite = std::all_of(w.values.begin(), w.values.end(),
                                       [](float value) { return std::isfinite(value); });
    require(is_finite, when + "the values of " + w.name + " are" + kRemedy);
  }
  require(std::isfinite(loss(batch)), when + "the loss is" + kRemedy);
}

StepReport Trainer::step(const TensorMap& batch) {
  require(impl_->options.accumulate == 1,
          "a step of " + std::to_string(impl_->options.accumulate) +
              " passes needs a batch for each: call step() with a function");
  return step([&batch](int64_t) { return batch; });
}

StepReport Trainer::step(const Batches& batch) {
  const TrainOptions& options = impl_->options;
  const double rate = learning_rate(options.schedule, step_count);
  impl_->clear_gradients();
  StepReport report{.rate = rate};
  for (int64_t pass = 0; pass < options.accumulate; ++pass) {
    const double loss = impl_->session.forward(batch(pass));
    require_finite(loss, "loss", step_count + 1);
    report.loss += loss / static_cast<double>(options.accumulate);
    impl_->session.backward(1.0F / static_cast<float>(options.accumulate));
  }
  report.norm = impl_->device ? impl_->device->step(rate, step_count + 1) : update(rate);
  require_finite(report.norm, "gradients' norm", step_count + 1);
  ++step_count;
  return report;
}

double Trainer::update(double rate) {
  std::vector<std::span<const float>> gradients;
  for (const Tensor& gradient : impl_->session.gradients()) {
    gradients.emplace_back(static_cast<const float*>(gradient.view().data),
                           static_cast<size_t>(gradient.size()));
  }
  const double norm = global_norm(gradients);
  if (!std::isfinite(norm)) return norm;
  std::vector<AdamWTensor> tensors;
  for (size_t i = 0; i < weights.size(); ++i) {
    WeightTensor& w = weights[i];
    tensors.push_back({w.values, moments[i].m, moments[i].v, gradients[i], w.bf16, w.decays});
  }
  const TrainOptions& options = impl_->options;
  adamw_step(tensors, options.adamw, rate, step_count + 1, clip_scale(norm, options.clip));
  return norm;
}

Tensor Trainer::tensor(std::string_view name) const {
  return impl_->session.session().tensor(name);
}

const Session& Trainer::session() const { return impl_->session.session(); }

}  // namespace coda
