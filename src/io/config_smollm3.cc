// SPDX-License-Identifier: Apache-2.0
// SmolLM3ForCausalLM's config.json: layers without RoPE, every fourth unless a list says which.
// In that list, no_rope_layers, 0 is a layer without.
#include <algorithm>

#include "io/architecture.h"
#include "io/config_checker.h"

namespace coda::io {
namespace {

std::vector<bool> rotated_layers(const Settings& settings, int64_t layers) {
  std::vector<bool> rotated;
  if (layers < 1 || layers > ConfigChecker::kMostLayers)
    return rotated;  // refused when the config is checked
  const int64_t interval = settings.whole("no_rope_layer_interval", 4);
  if (interval < 1) settings.refuse("no_rope_layer_interval", "must be at least 1");
  const nlohmann::json* list = settings.find("no_rope_layers");
  if (list == nullptr) {
    for (int64_t i = 0; i < layers; ++i) rotated.push_back((i + 1) % interval != 0);
  } else {
    if (!list->is_array() || std::ssize(*list) != layers)
      settings.refuse("no_rope_layers", "must be a list of 0 or 1 for each layer");
    for (const nlohmann::json& one : *list) {
      if (one != 0 && one != 1)
        settings.refuse("no_rope_layers", "must be a list of 0 or 1 for each layer");
      rotated.push_back(one == 1);
    }
  }
  const bool all = std::find(rotated.begin(), rotated.end(), false) == rotated.end();
  return all ? std::vector<bool>{} : rotated;
}

void read_smollm3(const Settings& settings, LlamaConfig& config) {
  config.rotated = rotated_layers(settings, config.layers);
  const int64_t window = optional_window_of(settings, 0);
  read_windows(settings, config, window, [&](int64_t i) {
    return window != 0 && !config.rotated.empty() && !config.rotated[static_cast<size_t>(i)];
  });
}

void write_smollm3(const LlamaConfig& config, nlohmann::ordered_json& json) {
  json["use_sliding_window"] = config.window != 0;
  write_windows(config, json);
  json["no_rope_layers"] = nlohmann::ordered_json::array();
  for (size_t i = 0; i < static_cast<size_t>(config.layers); ++i)
    json["no_rope_layers"].push_back(config.rotated.empty() || config.rotated[i] ? 1 : 0);
}

}  // namespace

Architecture smollm3() {
  return of_family({.name = "SmolLM3ForCausalLM",
                    .model_type = "smollm3",
                    .defaults = {.theta = 2000000,
                                 .max_positions = 32768,
                                 .tied = true,
                                 .kv_heads_as_heads = false,
                                 .padding = 128004},
                    .biases = Biases::attention_and_mlp,
                    .read = read_smollm3,
                    .write = write_smollm3});
}

}  // namespace coda::io
