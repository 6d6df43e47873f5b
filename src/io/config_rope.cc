// SPDX-License-Identifier: Apache-2.0
#include "io/config_rope.h"

#include <algorithm>
#include <cmath>

#include "io/config_checker.h"

namespace coda::io {
namespace {

using nlohmann::ordered_json;

RopeScaling llama3_scaling(const Settings& rope) {
  Llama3RopeScaling scaling;
  scaling.factor = rope.number("factor");
  scaling.low_freq_factor = rope.number("low_freq_factor");
  scaling.high_freq_factor = rope.number("high_freq_factor");
  scaling.original_max_positions = rope.whole("original_max_position_embeddings");
  return scaling;
}

// Where no attention_factor is given it is 0.1 m ln(factor) + 1, for m = 1, or the quotient of two.
RopeScaling yarn_scaling(const Settings& rope) {
  YarnRopeScaling scaling;
  scaling.factor = rope.number("factor");
  scaling.beta_fast = rope.number("beta_fast", 32.0);
  scaling.beta_slow = rope.number("beta_slow", 1.0);
  scaling.truncate = rope.flag("truncate", true);
  scaling.original_max_positions = rope.whole("original_max_position_embeddings");
  const auto inferred = [&](double m) {
    return scaling.factor <= 1 ? 1 : 0.1 * m * std::log(scaling.factor) + 1;
  };
  const double mscale = rope.number("mscale", 0.0), all = rope.number("mscale_all_dim", 0.0);
  const double otherwise = mscale != 0 && all != 0 ? inferred(mscale) / inferred(all) : inferred(1);
  scaling.attention_factor = rope.number("attention_factor", otherwise);
  return scaling;
}

std::vector<double> factors(const Settings& rope, const char* name) {
  const nlohmann::json* list = rope.find(name);
  const auto is_number = [](const nlohmann::json& one) { return one.is_number(); };
  if (list == nullptr || !list->is_array() || !std::ranges::all_of(*list, is_number))
    rope.refuse(name, "must be a list of numbers");
  return list->get<std::vector<double>>();
}

// The first context stands beside the object, as Phi-3 has it, or in it. Where no attention_factor
// is given it follows from how much longer sequences become.
RopeScaling longrope_scaling(const Settings& settings, const Settings& rope,
                             int64_t max_positions) {
  LongRopeScaling scaling{.short_factors = factors(rope, "short_factor"),
                          .long_factors = factors(rope, "long_factor")};
  const char* first = "original_max_position_embeddings";
  scaling.original_max_positions = (settings.find(first) != nullptr ? settings : rope).whole(first);
  const auto context = static_cast<double>(scaling.original_max_positions);
  const double factor = rope.number("factor", static_cast<double>(max_positions) / context);
  const double inferred = factor <= 1 ? 1 : std::sqrt(1 + std::log(factor) / std::log(context));
  scaling.attention_factor = rope.number("attention_factor", inferred);
  return scaling;
}

ordered_json json_of(const Llama3RopeScaling& scaling) {
  return {{"rope_type", "llama3"},
          {"factor", scaling.factor},
          {"low_freq_factor", scaling.low_freq_factor},
          {"high_freq_factor", scaling.high_freq_factor},
          {"original_max_position_embeddings", scaling.original_max_positions}};
}

ordered_json json_of(const LinearRopeScaling& scaling) {
  return {{"rope_type", "linear"}, {"factor", scaling.factor}};
}

ordered_json json_of(const DynamicRopeScaling& scaling) {
  return {{"rope_type", "dynamic"}, {"factor", scaling.factor}};
}

ordered_json json_of(const YarnRopeScaling& scaling) {
  return {{"rope_type", "yarn"},
          {"factor", scaling.factor},
          {"attention_factor", scaling.attention_factor},
          {"beta_fast", scaling.beta_fast},
          {"beta_slow", scaling.beta_slow},
          {"truncate", scaling.truncate},
          {"original_max_position_embeddings", scaling.original_max_positions}};
}

ordered_json json_of(const LongRopeScaling& scaling) {
  return {{"rope_type", "longrope"},
          {"short_factor", scaling.short_factors},
          {"long_factor", scaling.long_factors},
          {"attention_factor", scaling.attention_factor},
          {"original_max_position_embeddings", scaling.original_max_positions}};
}

void check_factor(const ConfigChecker& must, double factor) {
  must.positive("rope factor", factor);
  if (factor < 1) {
    throw Error(must.source + ": rope factor is " + nlohmann::json(factor).dump() +
                ", but must be at least 1");
  }
}

// That one of two numbers, by their names in config.json, is below the other.
void check_below(const ConfigChecker& must, const char* small, double low, const char* large,
                 double high) {
  if (low < high) return;
  throw Error(must.source + ": rope " + small + " (" + nlohmann::json(low).dump() +
              ") must be below " + large + " (" + nlohmann::json(high).dump() + ")");
}

void check_scaling(const ConfigChecker& must, const Llama3RopeScaling& scaling,
                   const LlamaConfig&) {
  must.positive("rope low_freq_factor", scaling.low_freq_factor);
  must.positive("rope high_freq_factor", scaling.high_freq_factor);
  must.size("rope original_max_position_embeddings", scaling.original_max_positions);
  check_factor(must, scaling.factor);
  check_below(must, "low_freq_factor", scaling.low_freq_factor, "high_freq_factor",
              scaling.high_freq_factor);
}

void check_scaling(const ConfigChecker& must, const LinearRopeScaling& scaling,
                   const LlamaConfig&) {
  check_factor(must, scaling.factor);
}

void check_scaling(const ConfigChecker& must, const DynamicRopeScaling& scaling,
                   const LlamaConfig&) {
  check_factor(must, scaling.factor);
}

void check_scaling(const ConfigChecker& must, const YarnRopeScaling& scaling,
                   const LlamaConfig& config) {
  must.positive("rope beta_fast", scaling.beta_fast);
  must.positive("rope beta_slow", scaling.beta_slow);
  must.positive("rope attention_factor", scaling.attention_factor);
  must.size("rope original_max_position_embeddings", scaling.original_max_positions);
  check_factor(must, scaling.factor);
  check_below(must, "beta_slow", scaling.beta_slow, "beta_fast", scaling.beta_fast);
  if (config.rope_theta <= 1) {
    throw Error(must.source + ": rope_theta is " + nlohmann::json(config.rope_theta).dump() +
                ", but rope type 'yarn' needs more than 1");
  }
}

void check_scaling(const ConfigChecker& must, const LongRopeScaling& scaling,
                   const LlamaConfig& config) {
  must.size("rope original_max_position_embeddings", scaling.original_max_positions);
  must.positive("rope attention_factor", scaling.attention_factor);
  const auto check_list = [&](const char* name, const std::vector<double>& list) {
    const int64_t turning = config.rotary_dim == 0 ? config.head_dim : config.rotary_dim;
    require(std::ssize(list) == turning / 2,
            must.source + ": " + name + " has " + std::to_string(list.size()) +
                " numbers, but heads of which " + std::to_string(turning) + " channels turn need " +
                std::to_string(turning / 2));
    for (const double factor : list) must.positive(name, factor);
  };
  check_list("rope short_factor", scaling.short_factors);
  check_list("rope long_factor", scaling.long_factors);
}

// Which channels of a head turn: the first of them where the architecture has that, else all.
void read_share(const Settings& settings, LlamaConfig& config, RotaryPart part) {
  const char* name = "partial_rotary_factor";
  const double share = settings.number(name, 1.0);
  if (settings.find(name) == nullptr) return;
  if (part == RotaryPart::whole && share != 1.0)
    settings.refuse(
        name, "only 1 is supported for " + config.architecture + " (all channels of a head turn)");
  if (!(share > 0 && share <= 1)) settings.refuse(name, "must be above 0 and at most 1");
  const auto turning = static_cast<int64_t>(static_cast<double>(config.head_dim) * share);
  config.rotary_dim = turning == config.head_dim ? 0 : turning;
}

// One object, rope_parameters or rope_scaling; `settings` is what it stands in.
void read_object(const Settings& settings, const Settings& rope, LlamaConfig& config,
                 RotaryPart part) {
  const double theta = rope.number("rope_theta", config.rope_theta);
  if (settings.find("rope_theta") != nullptr && theta != config.rope_theta) {
    rope.refuse("rope_theta", "rope_theta outside it is " +
                                  nlohmann::json(config.rope_theta).dump() +
                                  " (remove one of the two)");
  }
  config.rope_theta = theta;
  read_share(rope, config, part);
  const char* type_name = rope.find("rope_type") != nullptr ? "rope_type" : "type";
  const std::string type = rope.word(type_name, "default");
  if (type == "default") return;
  if (type == "llama3") {
    config.rope_scaling = llama3_scaling(rope);
  } else if (type == "linear") {
    config.rope_scaling = LinearRopeScaling{rope.number("factor")};
  } else if (type == "dynamic") {
    config.rope_scaling = DynamicRopeScaling{rope.number("factor")};
  } else if (type == "yarn") {
    config.rope_scaling = yarn_scaling(rope);
  } else if (type == "longrope" || type == "su") {  // its name when Phi-3 was new
    config.rope_scaling = longrope_scaling(settings, rope, config.max_positions);
  } else {
    rope.refuse(
        type_name,
        "only 'default', 'dynamic', 'linear', 'llama3', 'longrope' and 'yarn' are supported");
  }
}

// An object with one for each kind of layers.
void read_kinds(const Settings& settings, const Settings& rope, LlamaConfig& config) {
  for (const char* name : {"rope_type", "rope_theta"}) {
    if (rope.find(name) != nullptr)
      rope.refuse(name, "it must be given in 'full_attention' and 'sliding_attention'");
  }
  if (const nlohmann::json* full = rope.find("full_attention"))
    read_object(settings, Settings(*full, rope.source() + ": full_attention"), config,
                RotaryPart::whole);
  if (const nlohmann::json* sliding = rope.find("sliding_attention")) {
    const Settings local(*sliding, rope.source() + ": sliding_attention");
    config.window_rope_theta = local.number("rope_theta", config.window_rope_theta);
    if (local.word("rope_type", "default") != "default")
      local.refuse("rope_type", "only 'default' is supported in layers with the window");
    read_share(local, config, RotaryPart::whole);
  }
}

}  // namespace

// transformers 5 has rope_parameters with everything; 4 has rope_theta, and rope_scaling with the
// rest ("type" is an older name of "rope_type"). Where layers with the window have a base of their
// own, 5 has one such object for each kind of layers, 4 has rope_local_base_freq.
void read_rope(const Settings& settings, LlamaConfig& config, double theta_otherwise,
               double window_theta_otherwise, RotaryPart part) {
  read_share(settings, config, part);
  const nlohmann::json* parameters = settings.find("rope_parameters");
  const nlohmann::json* scaling = settings.find("rope_scaling");
  if (parameters != nullptr && scaling != nullptr) {
    throw Error(settings.source() +
                ": both rope_parameters and rope_scaling are given (remove one of the two)");
  }
  config.rope_theta = settings.number("rope_theta", theta_otherwise);
  const bool by_kind = window_theta_otherwise != 0;
  if (by_kind)
    config.window_rope_theta = settings.number("rope_local_base_freq", window_theta_otherwise);
  const nlohmann::json* object = parameters != nullptr ? parameters : scaling;
  if (object == nullptr) return;
  const Settings rope(*object, settings.source() + (parameters != nullptr ? ": rope_parameters"
                                                                          : ": rope_scaling"));
  if (by_kind && parameters != nullptr) {
    read_kinds(settings, rope, config);
  } else {
    read_object(settings, rope, config, part);
  }
}

void write_rope(const LlamaConfig& config, nlohmann::ordered_json& json) {
  json["rope_theta"] = config.rope_theta;
  if (config.window_rope_theta != 0) json["rope_local_base_freq"] = config.window_rope_theta;
  json["rope_scaling"] = nullptr;
  if (config.rope_scaling)
    json["rope_scaling"] =
        std::visit([](const auto& scaling) { return json_of(scaling); }, *config.rope_scaling);
  if (config.rotary_dim != 0)
    json["partial_rotary_factor"] = rotary_share(config.rotary_dim, config.head_dim);
}

double rotary_share(int64_t rotary_dim, int64_t head_dim) {
  const auto head = static_cast<double>(head_dim);
  const double share = static_cast<double>(rotary_dim) / head;
  const bool is_exact = static_cast<int64_t>(head * share) == rotary_dim;
  return is_exact ? share : (static_cast<double>(rotary_dim) + 0.5) / head;
}

void check_rope(const LlamaConfig& config, const std::string& source) {
  const ConfigChecker must{source};
  must.positive("rope_theta", config.rope_theta);
  if (config.window_rope_theta != 0)
    must.positive("rope_local_base_freq", config.window_rope_theta);
  require(config.rotary_dim == 0 ||
              (config.joined && config.rotary_dim >= 2 && config.rotary_dim <= config.head_dim &&
               config.rotary_dim % 2 == 0),
          source + ": partial_rotary_factor turns " + std::to_string(config.rotary_dim) +
              " of a head's " + std::to_string(config.head_dim) +
              " channels, but it must be an even number of them, and of Phi-3");
  if (config.rope_scaling)
    std::visit([&](const auto& scaling) { check_scaling(must, scaling, config); },
               *config.rope_scaling);
}

}  // namespace coda::io
