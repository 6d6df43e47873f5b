// SPDX-License-Identifier: Apache-2.0
#include "models/rope_angles.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace coda {
namespace {

constexpr double kTurn = 2 * std::numbers::pi;

// Short waves stay, long ones are stretched by `factor`, those between the two bands in between.
void stretch(const Llama3RopeScaling& s, const LlamaConfig&, int64_t, RopeAngles& angles) {
  for (double& step : angles.steps) {
    const double turns = static_cast<double>(s.original_max_positions) * step / kTurn;
    const double kept = (turns - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor);
    const double share = std::clamp(kept, 0.0, 1.0);
    step *= share + (1 - share) / s.factor;
  }
}

void stretch(const LinearRopeScaling& s, const LlamaConfig&, int64_t, RopeAngles& angles) {
  for (double& step : angles.steps) step /= s.factor;
}

// All is in the base.
void stretch(const DynamicRopeScaling&, const LlamaConfig&, int64_t, RopeAngles&) {}

void stretch(const YarnRopeScaling& s, const LlamaConfig& config, int64_t, RopeAngles& angles) {
  const auto dim = static_cast<double>(turning_channels(config));
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

void stretch(const LongRopeScaling& s, const LlamaConfig&, int64_t length, RopeAngles& angles) {
  const bool is_long = length > s.original_max_positions;
  const std::vector<double>& factors = is_long ? s.long_factors : s.short_factors;
  for (size_t i = 0; i < angles.steps.size(); ++i) angles.steps[i] /= factors[i];
  angles.factor = s.attention_factor;
}

// The base of longer sequences is larger, so that the longest wave is stretched most.
double base_of(const LlamaConfig& config, int64_t length) {
  const auto* dynamic =
      config.rope_scaling ? std::get_if<DynamicRopeScaling>(&*config.rope_scaling) : nullptr;
  if (dynamic == nullptr || length <= config.max_positions) return config.rope_theta;
  const double dim = static_cast<double>(turning_channels(config));
  const double times = static_cast<double>(length) / static_cast<double>(config.max_positions);
  const double growth = dynamic->factor * times - (dynamic->factor - 1);
  return config.rope_theta * std::pow(growth, dim / (dim - 2));
}

}  // namespace

int64_t turning_channels(const LlamaConfig& config) {
  return config.rotary_dim == 0 ? config.head_dim : config.rotary_dim;
}

RopeAngles rope_angles(const LlamaConfig& config, int64_t length, bool windowed) {
  const bool own = windowed && config.window_rope_theta != 0;
  const double base = own ? config.window_rope_theta : base_of(config, length);
  RopeAngles angles;
  for (int64_t pair = 0; pair < turning_channels(config) / 2; ++pair) {
    const double power =
        -2.0 * static_cast<double>(pair) / static_cast<double>(turning_channels(config));
    angles.steps.push_back(std::pow(base, power));
  }
  if (config.rope_scaling && !own)
    std::visit([&](const auto& scaling) { stretch(scaling, config, length, angles); },
               *config.rope_scaling);
  return angles;
}

}  // namespace coda
