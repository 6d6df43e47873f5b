// SPDX-License-Identifier: Apache-2.0
// MistralForCausalLM's config.json: a window in all layers.
#include "io/architecture.h"

namespace coda::io {
namespace {

constexpr const char* kMistral = "MistralForCausalLM";

ModelConfig read_mistral(const Settings& settings) {
  require_silu(settings);
  if (settings.find("layer_types") != nullptr)
    settings.refuse("layer_types", "all layers of Mistral are alike (leave it out)");
  LlamaConfig config =
      read_family(settings, kMistral, {.max_positions = 131072, .kv_heads_as_heads = false});
  config.window = window_of(settings, 4096);
  return config;
}

nlohmann::ordered_json mistral_json(const ModelConfig& of) {
  const auto& config = std::get<LlamaConfig>(of);
  nlohmann::ordered_json json = family_json(config);
  json["sliding_window"] = nullptr;
  if (config.window != 0) json["sliding_window"] = config.window;
  return json;
}

}  // namespace

Architecture mistral() { return {kMistral, "mistral", read_mistral, mistral_json}; }

}  // namespace coda::io
