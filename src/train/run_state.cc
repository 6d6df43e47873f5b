// SPDX-License-Identifier: Apache-2.0
// run_state.json, written and read.
#include "train/run_state.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "coda/error.h"
#include "io/json_text.h"

namespace coda::train {
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
              " (the file is corrupted: remove this checkpoint's folder to go on from the one "
              "before it)");
}

const json& member(const json& object, const char* name, const std::string& source) {
  const auto found = object.find(name);
  if (found == object.end()) fail(source, std::string("no '") + name + "'");
  return *found;
}

std::vector<LossPoint> losses_of(const json& object, const char* name, const std::string& source) {
  const json& list = member(object, name, source);
  if (!list.is_array()) fail(source, std::string("'") + name + "' is no list");
  std::vector<LossPoint> losses;
  for (const json& point : list) {
    if (!point.is_array() || point.size() != 2 || !point[0].is_number_integer() ||
        !point[1].is_number()) {
      fail(source, std::string("'") + name + "' has an entry that is no [step, loss]");
    }
    losses.push_back({point[0].get<int64_t>(), point[1].get<double>()});
  }
  return losses;
}

}  // namespace

std::string run_state_text(const RunState& state) {
  const ordered_json json = {
      {"format", kFormat},
      {"step", state.step},
      {"seed", state.seed},
      {"options", state.options},
      {"train_losses", json_of(state.train_losses)},
      {"held_out_losses", json_of(state.held_out_losses)},
  };
  return json.dump() + "\n";
}

RunState parse_run_state(std::string_view text, const std::string& source) {
  const json object = io::parse_json(text, source);
  if (!object.is_object()) fail(source, "not a JSON object");
  const json& format = member(object, "format", source);
  if (format != kFormat) {
    throw Error(source + ": format " + format.dump() + " is not the one this version reads, " +
                std::to_string(kFormat) + " (use the version that wrote the checkpoint)");
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
  state.train_losses = losses_of(object, "train_losses", source);
  state.held_out_losses = losses_of(object, "held_out_losses", source);
  return state;
}

}  // namespace coda::train
