// SPDX-License-Identifier: Apache-2.0
#include "train/trainer.h"

#include <algorithm>
#include <cmath>

#include "coda/error.h"
#include "io/batches.h"
#include "train/gradient_clip.h"

namespace coda::train {
namespace {

RunnerOptions runner_options(const TrainSettings& s) {
  return {.task = Task::gradients,
          .storage = s.storage,
          .batch = s.batch,
          .sequence = s.sequence,
          .accumulate = s.accumulate > 1,
          .loss_rows = s.loss_rows};
}

constexpr const char* kRemedy = " not finite (lower --lr, raise --warmup, or look at the data)";

void require_finite(double value, const char* what, int64_t step) {
  require(std::isfinite(value), "step " + std::to_string(step) + ": the " + what + " is" + kRemedy);
}

}  // namespace

Trainer::Trainer(const TrainSettings& settings, const io::Tokens& tokens, Backend& backend)
    : settings_(settings),
      tokens_(tokens),
      runner_(settings.model, runner_options(settings), backend),
      ids_(static_cast<size_t>(settings.batch * settings.sequence)),
      targets_(ids_.size()) {
  check_schedule(settings.schedule);
  check_adamw(settings.adamw);
  require(settings.clip >= 0, "the largest norm of the gradients must be a number from 0, not " +
                                  std::to_string(settings.clip));
  weights = initial_weights(runner_.model(), settings.seed);
  for (const WeightTensor& w : weights) {
    moments.push_back(
        {std::vector<float>(w.values.size(), 0.0F), std::vector<float>(w.values.size(), 0.0F)});
  }
  restored();
}

void Trainer::restored() {
  for (WeightTensor& w : weights) w.round();
  runner_.bind(weights);
}

void Trainer::require_sound() {
  const std::string when = "after step " + std::to_string(step_count) + ": ";
  for (const WeightTensor& w : weights) {
    const bool is_finite = std::all_of(w.values.begin(), w.values.end(),
                                       [](float value) { return std::isfinite(value); });
    require(is_finite, when + "the values of " + w.name + " are" + kRemedy);
  }
  io::sample_batch(tokens_, settings_.seed, step_count, 0, settings_.sequence, ids_, targets_);
  runner_.forward(ids_, targets_);
  require(std::isfinite(runner_.loss()), when + "the loss is" + kRemedy);
}

StepReport Trainer::step() {
  const double rate = learning_rate(settings_.schedule, step_count);
  const std::vector<std::span<float>>& gradients = runner_.gradients();
  if (settings_.accumulate > 1) {
    for (const std::span<float>& g : gradients) std::fill(g.begin(), g.end(), 0.0F);
  }
  StepReport report{.rate = rate};
  for (int64_t pass = 0; pass < settings_.accumulate; ++pass) {
    io::sample_batch(tokens_, settings_.seed, step_count, pass * settings_.batch,
                     settings_.sequence, ids_, targets_);
    runner_.forward(ids_, targets_);
    require_finite(runner_.loss(), "loss", step_count + 1);
    report.loss += runner_.loss() / static_cast<double>(settings_.accumulate);
    runner_.backward(1.0F / static_cast<float>(settings_.accumulate));
  }
  report.norm =
      global_norm(std::vector<std::span<const float>>(gradients.begin(), gradients.end()));
  require_finite(report.norm, "gradients' norm", step_count + 1);

  std::vector<AdamWTensor> tensors;
  for (size_t i = 0; i < weights.size(); ++i) {
    WeightTensor& w = weights[i];
    tensors.push_back({w.values, moments[i].m, moments[i].v, gradients[i], w.bf16, w.decays});
  }
  adamw_step(tensors, settings_.adamw, rate, step_count + 1,
             clip_scale(report.norm, settings_.clip));
  ++step_count;
  return report;
}

}  // namespace coda::train
