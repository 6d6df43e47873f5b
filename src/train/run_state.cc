// SPDX-License-Identifier: Apache-2.0
// Writes and reads run_state.json.
#include "train/run_state.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "coda/error.h"
#include "coda/messages.h"
#include "io/json_text.h"

namespace coda {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr int kFormat = 1;

ordered_json json_of(const std::vector<LossPoint>& losses) {
  ordered_json list = ordered_json::array();
  for (const LossPoint& point : losses) {
    invariant(std::isfinite(point.loss), "run_state_text: a loss is not finite");
    list.push_back({point.step, point.loss});
  }
  return list;
}

[[noreturn]] void fail(const std::string& source, const std::string& problem) {
  throw Error(source + ": " + problem +
              " (the file is corrupted: remove this checkpoint's folder to continue from the one "
              "before it)");
}

const json& member(const json& object, const char* name, const std::string& source) {
  const auto found = object.find(name);
  if (found == object.end()) fail(source, std::string("no '") + name + "'");
  return *found;
}

// Checks that steps ascend and the last one is done.
std::vector<LossPoint> losses_of(const json& object, const char* name, int64_t done,
                                 const std::string& source) {
  const json& list = member(object, name, source);
  if (!list.is_array()) fail(source, std::string("'") + name + "' is no list");
  std::vector<LossPoint> losses;
  for (const json& point : list) {
    if (!point.is_array() || point.size() != 2 || !point[0].is_number_integer() ||
        !point[1].is_number()) {
      fail(source, std::string("'") + name + "' has an entry that is no [step, loss]");
    }
    const auto step = point[0].get<int64_t>();
    if (step < 0 || step > done || (!losses.empty() && step <= losses.back().step)) {
      fail(source, std::string("'") + name + "' has step " + std::to_string(step) +
                       " where steps ascend to 'step', " + std::to_string(done));
    }
    losses.push_back({step, point[1].get<double>()});
  }
  return losses;
}

// Files of versions without 8-bit GEMMs have no scales.
std::vector<float> scales_of(const json& object, const std::string& source) {
  std::vector<float> scales;
  const auto list = object.find("eight_bit_scales");
  if (list == object.end()) return scales;
  if (!list->is_array()) fail(source, "'eight_bit_scales' is no list");
  for (const json& scale : *list) {
    const float value = scale.is_number() ? scale.get<float>() : NAN;
    if (!std::isfinite(value) || value < 0)
      fail(source, "'eight_bit_scales' has an entry that is no number from 0");
    scales.push_back(value);
  }
  return scales;
}

}  // namespace

std::string run_state_text(const RunState& state) {
  const ordered_json json = {
      {"format", kFormat},
      {"step", state.step},
      {"seed", state.seed},
      {"options", state.options},
      {"optimizer", state.optimizer},
      {"eight_bit_scales", state.eight_bit_scales},
      {"train_losses", json_of(state.train_losses)},
      {"held_out_losses", json_of(state.held_out_losses)},
  };
  // A path in the options may be invalid UTF-8.
  return json.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

RunState parse_run_state(std::string_view text, const std::string& source) {
  const json object = io::parse_json(text, source);
  if (!object.is_object()) fail(source, "not a JSON object");
  const json& format = member(object, "format", source);
  if (format != kFormat) {
    throw Error(source + ": format " + in_quotes(format.dump()) +
                " is not the one this version reads, " + std::to_string(kFormat) +
                " (use the version that wrote the checkpoint)");
  }
  const json& step = member(object, "step", source);
  const json& seed = member(object, "seed", source);
  const json& options = member(object, "options", source);
  if (!step.is_number_unsigned() || step.get<uint64_t>() > uint64_t{INT64_MAX}) {
    fail(source, "'step' is no count");
  }
  if (!seed.is_number_unsigned()) fail(source, "'seed' is no number from 0 to 2^64 - 1");
  if (!options.is_object()) fail(source, "'options' is no object");
  RunState state;
  state.step = step.get<int64_t>();
  state.seed = seed.get<uint64_t>();
  for (const auto& [name, value] : options.items()) {
    if (!value.is_string()) fail(source, "'options' has a value that is no text");
    state.options[name] = value.get<std::string>();
  }
  // Versions that had only AdamW did not store the optimizer's name.
  if (const auto optimizer = object.find("optimizer"); optimizer != object.end()) {
    if (!optimizer->is_string()) fail(source, "'optimizer' is no name");
    state.optimizer = optimizer->get<std::string>();
  }
  state.eight_bit_scales = scales_of(object, source);
  state.train_losses = losses_of(object, "train_losses", state.step, source);
  state.held_out_losses = losses_of(object, "held_out_losses", state.step, source);
  return state;
}

}  // namespace coda
