// SPDX-License-Identifier: Apache-2.0
#include "models/rope_angles.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace coda {
namespace {

constexpr double kTurn = 2 * std::numbers::pi;

// Short waves stay, long ones are stretched by `factor`, those between the two bands in between.
void stretch(const Llama3RopeScaling& s, const LlamaConfig&, RopeAngles& angles) {
  for (double& step : angles.steps) {
    const double turns = static_cast<double>(s.original_max_positions) * step / kTurn;
    const double kept = (turns - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor);
    const double share = std::clamp(kept, 0.0, 1.0);
    step *= share + (1 - share) / s.factor;
  }
}

void stretch(const LinearRopeScaling& s, const LlamaConfig&, RopeAngles& angles) {
  for (double& step : angles.steps) step /= s.factor;
}

void stretch(const YarnRopeScaling& s, const LlamaConfig& config, RopeAngles& angles) {
  const auto dim = static_cast<double>(config.head_dim);
  // The pair, in fractions, that turns so often over the first context.
  const auto pair_of = [&](double turns) {
    const double context = static_cast<double>(s.original_max_positions);
    return dim * std::log(context / (turns * kTurn)) / (2 * std::log(config.rope_theta));
  };
  double low = pair_of(s.beta_fast), high = pair_of(s.beta_slow);
  if (s.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, dim - 1);
  if (low == high) high += 0.001;
  for (size_t i = 0; i < angles.steps.size(); ++i) {
    const double share = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    angles.steps[i] *= (1 - share) + share / s.factor;
  }
  angles.factor = s.attention_factor;
}

}  // namespace

RopeAngles rope_angles(const LlamaConfig& config) {
  RopeAngles angles;
  for (int64_t pair = 0; pair < config.head_dim / 2; ++pair) {
    const double power = -2.0 * static_cast<double>(pair) / static_cast<double>(config.head_dim);
    angles.steps.push_back(std::pow(config.rope_theta, power));
  }
  if (config.rope_scaling)
    std::visit([&](const auto& scaling) { stretch(scaling, config, angles); },
               *config.rope_scaling);
  return angles;
}

}  // namespace coda
