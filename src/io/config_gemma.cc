// SPDX-License-Identifier: Apache-2.0
// config.json of Gemma2ForCausalLM and Gemma3ForCausalLM: norms around each sublayer that multiply
// by 1 + weight, GELU, a scaled embedding, a window in some layers. Gemma 2 has soft caps; Gemma 3
// has norms of queries and keys, and RoPE of another base in the layers with the window.
#include "io/architecture.h"

namespace coda::io {
namespace {

// A cap, `otherwise` where it is not given, 0 where it is null.
double cap_of(const Settings& settings, const char* name, double otherwise) {
  if (settings.is_null(name)) return 0;
  if (settings.find(name) == nullptr) return otherwise;
  const double cap = settings.number(name);
  if (!(cap > 0)) settings.refuse(name, "must be a positive number, or null for none");
  return cap;
}

// What both have; the caps as given where a config says nothing.
void read_gemma(const Settings& settings, LlamaConfig& config, double score_cap, double logit_cap) {
  for (const char* activation : {"hidden_activation", "hidden_act"}) {
    if (settings.word(activation, "gelu_pytorch_tanh") != "gelu_pytorch_tanh")
      settings.refuse(activation, "only 'gelu_pytorch_tanh' is supported");
  }
  settings.must_be("use_bidirectional_attention", false, "attention is causal");
  config.norms = NormPlace::both;
  config.unit_offset_norms = true;
  config.gelu = true;
  config.scaled_embedding = true;
  config.query_scalar = static_cast<double>(settings.whole("query_pre_attn_scalar", 256));
  if (!(config.query_scalar > 0)) settings.refuse("query_pre_attn_scalar", "must be positive");
  config.score_cap = cap_of(settings, "attn_logit_softcapping", score_cap);
  config.logit_cap = cap_of(settings, "final_logit_softcapping", logit_cap);
}

void read_gemma2(const Settings& settings, LlamaConfig& config) {
  read_gemma(settings, config, 50, 30);
  read_windows(settings, config, window_of(settings, 4096), [](int64_t i) { return i % 2 == 0; });
}

void read_gemma3(const Settings& settings, LlamaConfig& config) {
  // transformers reads this one, but computes scores without a cap.
  if (settings.find("attn_logit_softcapping") != nullptr)
    settings.refuse("attn_logit_softcapping", "scores of Gemma 3 have no cap (leave it out)");
  read_gemma(settings, config, 0, 0);
  config.query_key_norm = QueryKeyNorm::head;
  // transformers 4 has the first name, 5 the second.
  const int64_t pattern =
      settings.whole("sliding_window_pattern", settings.whole("_sliding_window_pattern", 6));
  if (pattern < 1) settings.refuse("sliding_window_pattern", "must be at least 1");
  read_windows(settings, config, window_of(settings, 4096),
               [&](int64_t i) { return (i + 1) % pattern != 0; });
}

// query_pre_attn_scalar is a whole number in transformers.
void write_gemma(const LlamaConfig& config, nlohmann::ordered_json& json) {
  json.erase("hidden_act");
  json["hidden_activation"] = "gelu_pytorch_tanh";
  json["query_pre_attn_scalar"] = static_cast<int64_t>(config.query_scalar);
  for (const auto& [name, cap] : {std::pair{"attn_logit_softcapping", config.score_cap},
                                  std::pair{"final_logit_softcapping", config.logit_cap}}) {
    json[name] = nullptr;
    if (cap != 0) json[name] = cap;
  }
  write_windows(config, json);
}

}  // namespace

Architecture gemma2() {
  return of_family({.name = "Gemma2ForCausalLM",
                    .model_type = "gemma2",
                    .defaults = {.max_positions = 8192,
                                 .tied = true,
                                 .kv_heads_as_heads = false,
                                 .padding = 0,
                                 .head_dim = 256},
                    .biases = Biases::attention,
                    .is_silu = false,
                    .read = read_gemma2,
                    .write = write_gemma});
}

Architecture gemma3() {
  return of_family({.name = "Gemma3ForCausalLM",
                    .model_type = "gemma3_text",
                    .defaults = {.theta = 1000000,
                                 .window_theta = 10000,
                                 .max_positions = 131072,
                                 .tied = true,
                                 .kv_heads_as_heads = false,
                                 .padding = 0,
                                 .head_dim = 256},
                    .biases = Biases::attention,
                    .is_silu = false,
                    .read = read_gemma3,
                    .write = write_gemma});
}

}  // namespace coda::io
