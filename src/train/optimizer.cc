// SPDX-License-Identifier: Apache-2.0
// The list of optimizers by name, and the checks of their settings.
#include "coda/optimizer.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <ranges>

#include "coda/error.h"
#include "coda/messages.h"
#include "train/optimizer_rows.h"
#include "train/rounding_noise.h"

namespace coda {
namespace {

// The shortest text that parses to the same number.
std::string shortest_text(double value) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, value).ptr};
}

std::string names_of(const auto& list) {
  std::string names;
  for (const auto& one : list) names += (names.empty() ? "" : ", ") + one.name;
  return names;
}

std::map<std::string, double> with_defaults(const OptimizerKind& kind,
                                            const std::map<std::string, double>& given) {
  std::map<std::string, double> settings = given;
  for (const auto& [name, value] : given) {
    require(std::ranges::find(kind.settings, name, &OptimizerSetting::name) != kind.settings.end(),
            in_quotes(name) + " is no setting of " + kind.name + "; its settings are " +
                names_of(kind.settings));
  }
  for (const OptimizerSetting& setting : kind.settings) {
    const double value = settings.emplace(setting.name, setting.value).first->second;
    require(std::isfinite(value) && value >= 0 && (!setting.is_share || value < 1),
            kind.name + ": " + setting.name + " must be " +
                (setting.is_share ? "at least 0 and below 1" : "a number from 0") + ", not " +
                std::to_string(value));
  }
  return settings;
}

}  // namespace

const std::vector<OptimizerKind>& optimizer_kinds() {
#define CODA_CALL(name) optimizers::name(),
  static const std::vector<OptimizerKind> kinds = {CODA_OPTIMIZERS(CODA_CALL)};
#undef CODA_CALL
  return kinds;
}

const OptimizerKind& optimizer_kind(std::string_view name) {
  const std::vector<OptimizerKind>& kinds = optimizer_kinds();
  const auto found = std::ranges::find(kinds, name, &OptimizerKind::name);
  require(found != kinds.end(),
          "there is no optimizer " + in_quotes(name) + ": choose one of " + names_of(kinds));
  return *found;
}

Optimizer make_optimizer(std::string_view name, const std::map<std::string, double>& settings,
                         DType states) {
  const OptimizerKind& kind = optimizer_kind(name);
  const std::map<std::string, double> all = with_defaults(kind, settings);
  require(states == DType::f32 || states == DType::bf16,
          kind.name + ": the type of its states must be f32 or bf16, not " +
              std::string(name_of(states)));
  Optimizer optimizer = kind.make(all, states);
  optimizer.name = kind.name;
  optimizer.settings = all;
  optimizer.decay = all.at("decay");
  return optimizer;
}

std::string text(const Optimizer& optimizer) {
  std::string settings;
  for (const auto& [name, value] : optimizer.settings)
    settings += (settings.empty() ? "" : ", ") + name + " " + shortest_text(value);
  std::string states;
  for (const auto& [name, dtype] : optimizer.states)
    states += (states.empty() ? "; " : ", ") + name + " " + std::string(name_of(dtype));
  std::string rounding;
  if (has_noise(optimizer))
    rounding = "; master weights " + std::string(name_of(optimizer.weights)) + ", seed " +
               std::to_string(optimizer.seed);
  return optimizer.name + " (" + settings + states + rounding + ")";
}

std::string number_text(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.9g", static_cast<double>(static_cast<float>(value)));
  return text;
}

}  // namespace coda
