// SPDX-License-Identifier: Apache-2.0
// Uses TensorUpdate (coda/optimizer.h) on the trainer's fields.
#include "train/host_update.h"

#include <cmath>

#include "coda/gradient_clip.h"

namespace coda {

HostUpdate::HostUpdate(Backend& backend, const TrainOptions& options)
    : backend_(backend),
      optimizer_(options.optimizer),
      clip_(options.clip),
      microbatches_(options.accumulate),
      update_(options.optimizer, backend),
      finite_(DType::f32, 1, 1) {}

void HostUpdate::start_microbatches() {
  losses_ = 0;
  if (microbatches_ == 1) return;
  for (const Tensor& gradient : session_->gradients()) backend_.fill(gradient.view(), std::byte{0});
}

GradientSession::Overlapped HostUpdate::overlapped(bool /*is_first*/, bool /*is_last*/) {
  return {.between = [this] {
    const auto loss = static_cast<double>(session_->loss().floats()[0]);
    losses_ += loss / static_cast<double>(microbatches_);
    is_finite_ = is_finite_ && std::isfinite(loss);
  }};
}

std::function<StepReport()> HostUpdate::start_step(double rate, int64_t step, bool asks_to_stop) {
  StepReport report{.loss = losses_, .rate = rate, .asks_to_stop = asks_to_stop};
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const TensorView gradient = session_->gradients()[i].view();
    tensors_[i].gradients = {static_cast<const float*>(gradient.data),
                             static_cast<size_t>(gradient.size())};
  }
  run_profiled(profiler_, ProfileTrack::compute, "gradient_norm", [&] {
    std::vector<std::span<const float>> gradients;
    for (const UpdatedTensor& tensor : tensors_) gradients.push_back(tensor.gradients);
    report.norm = global_norm(gradients);
  });
  is_finite_ = is_finite_ && std::isfinite(report.norm);
  if (is_finite_) {
    run_profiled(profiler_, ProfileTrack::compute, optimizer_.name,
                 [&] { update_.run(tensors_, rate, step, clip_scale(report.norm, clip_)); });
  }
  finite_.fill(is_finite_ ? 1 : 0);
  if (EightBitScales* scales = session_->scales(); scales != nullptr) scales->finish_step(finite_);
  session_->make_copies();
  return [report] { return report; };
}

void HostUpdate::upload(Weights& weights, std::vector<ParameterState>& states) {
  tensors_.clear();
  for (size_t i = 0; i < weights.size(); ++i) {
    WeightTensor& w = weights[i];
    make_state(optimizer_, w, states[i]);
    UpdatedTensor& tensor = tensors_.emplace_back();
    tensor.weights = w.values;
    for (const OptimizerState& state : optimizer_.states)
      tensor.states.emplace_back(states[i].find(state.name)->second);
    tensor.bf16 = w.bf16;
    tensor.decays = w.decays;
  }
  parameters_ = tensors_of(weights, backend_);
}

std::function<void()> HostUpdate::start_download(Weights& /*weights*/,
                                                 std::vector<ParameterState>& /*states*/) {
  return [] {};
}

}  // namespace coda
