// SPDX-License-Identifier: Apache-2.0
// Qwen2ForCausalLM's config.json: biases on q, k and v; a window in the upper layers.
#include "io/architecture.h"

namespace coda::io {
namespace {

constexpr const char* kQwen2 = "Qwen2ForCausalLM";

ModelConfig read_qwen2(const Settings& settings) {
  require_silu(settings);
  LlamaConfig config =
      read_family(settings, kQwen2, {.max_positions = 32768, .kv_heads_as_heads = false});
  config.qkv_bias = true;
  const int64_t window = settings.flag("use_sliding_window", false) ? window_of(settings, 4096) : 0;
  const int64_t first = settings.whole("max_window_layers", 28);
  read_windows(settings, config, window, [&](int64_t i) { return window != 0 && i >= first; });
  return config;
}

nlohmann::ordered_json qwen2_json(const ModelConfig& of) {
  const auto& config = std::get<LlamaConfig>(of);
  nlohmann::ordered_json json = family_json(config);
  json["use_sliding_window"] = config.window != 0;
  write_windows(config, json);
  return json;
}

}  // namespace

Architecture qwen2() { return {kQwen2, "qwen2", read_qwen2, qwen2_json}; }

}  // namespace coda::io
