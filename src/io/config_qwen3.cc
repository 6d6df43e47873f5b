// SPDX-License-Identifier: Apache-2.0
// Qwen3ForCausalLM's config.json: norms of each head of q and k; a window in the upper layers.
#include "io/architecture.h"

namespace coda::io {
namespace {

constexpr const char* kQwen3 = "Qwen3ForCausalLM";

ModelConfig read_qwen3(const Settings& settings) {
  require_silu(settings);
  LlamaConfig config = read_family(
      settings, kQwen3, {.max_positions = 32768, .kv_heads_as_heads = false, .head_dim = 128});
  config.query_key_norm = QueryKeyNorm::head;
  read_biases(settings, config, Biases::attention);
  const int64_t window = settings.flag("use_sliding_window", false) ? window_of(settings, 4096) : 0;
  const int64_t first = settings.whole("max_window_layers", 28);
  read_windows(settings, config, window, [&](int64_t i) { return window != 0 && i >= first; });
  return config;
}

nlohmann::ordered_json qwen3_json(const ModelConfig& of) {
  const auto& config = std::get<LlamaConfig>(of);
  nlohmann::ordered_json json = family_json(config);
  write_biases(config, json, Biases::attention);
  json["use_sliding_window"] = config.window != 0;
  write_windows(config, json);
  return json;
}

}  // namespace

Architecture qwen3() { return {kQwen3, "qwen3", read_qwen3, qwen3_json}; }

}  // namespace coda::io
