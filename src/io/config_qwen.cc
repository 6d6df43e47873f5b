// SPDX-License-Identifier: Apache-2.0
// config.json of Qwen2ForCausalLM and Qwen3ForCausalLM: a window in the upper layers. Qwen2 has
// biases on q, k and v; Qwen3 has norms of each head of q and k.
#include "io/architecture.h"

namespace coda::io {
namespace {

void read_upper_window(const Settings& settings, LlamaConfig& config) {
  const int64_t window = optional_window_of(settings, 4096);
  const int64_t first = settings.whole("max_window_layers", 28);
  read_windows(settings, config, window, [&](int64_t i) { return window != 0 && i >= first; });
}

void write_upper_window(const LlamaConfig& config, nlohmann::ordered_json& json) {
  json["use_sliding_window"] = config.window != 0;
  write_windows(config, json);
}

}  // namespace

Architecture qwen2() {
  return of_family({.name = "Qwen2ForCausalLM",
                    .model_type = "qwen2",
                    .defaults = {.max_positions = 32768, .kv_heads_as_heads = false},
                    .read =
                        [](const Settings& settings, LlamaConfig& config) {
                          config.qkv_bias = true;
                          read_upper_window(settings, config);
                        },
                    .write = write_upper_window});
}

Architecture qwen3() {
  return of_family(
      {.name = "Qwen3ForCausalLM",
       .model_type = "qwen3",
       .defaults = {.max_positions = 32768, .kv_heads_as_heads = false, .head_dim = 128},
       .biases = Biases::attention,
       .read =
           [](const Settings& settings, LlamaConfig& config) {
             config.query_key_norm = QueryKeyNorm::head;
             read_upper_window(settings, config);
           },
       .write = write_upper_window});
}

}  // namespace coda::io
