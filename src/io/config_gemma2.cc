// SPDX-License-Identifier: Apache-2.0
// Gemma2ForCausalLM's config.json: norms around each sublayer that multiply by 1 + weight, GELU,
// soft caps, a scaled embedding, a window in every other layer.
#include "io/architecture.h"

namespace coda::io {
namespace {

constexpr const char* kGemma2 = "Gemma2ForCausalLM";

// A cap, `otherwise` where it is not given, 0 where it is null.
double cap_of(const Settings& settings, const char* name, double otherwise) {
  if (settings.is_null(name)) return 0;
  const double cap = settings.number(name, otherwise);
  if (!(cap > 0)) settings.refuse(name, "must be a positive number, or null for none");
  return cap;
}

ModelConfig read_gemma2(const Settings& settings) {
  for (const char* name : {"hidden_activation", "hidden_act"}) {
    if (settings.word(name, "gelu_pytorch_tanh") != "gelu_pytorch_tanh")
      settings.refuse(name, "only 'gelu_pytorch_tanh' is supported");
  }
  settings.must_be("use_bidirectional_attention", false, "attention is causal");
  LlamaConfig config = read_family(
      settings, kGemma2,
      {.max_positions = 8192, .tied = true, .kv_heads_as_heads = false, .head_dim = 256});
  config.norms = NormPlace::both;
  config.unit_offset_norms = true;
  config.gelu = true;
  config.scaled_embedding = true;
  config.qkv_bias = config.output_bias = settings.flag("attention_bias", false);
  config.query_scalar = static_cast<double>(settings.whole("query_pre_attn_scalar", 256));
  if (!(config.query_scalar > 0)) settings.refuse("query_pre_attn_scalar", "must be positive");
  config.score_cap = cap_of(settings, "attn_logit_softcapping", 50);
  config.logit_cap = cap_of(settings, "final_logit_softcapping", 30);
  read_windows(settings, config, window_of(settings, 4096), [](int64_t i) { return i % 2 == 0; });
  return config;
}

// query_pre_attn_scalar is a whole number in transformers.
nlohmann::ordered_json gemma2_json(const ModelConfig& of) {
  const auto& config = std::get<LlamaConfig>(of);
  nlohmann::ordered_json json = family_json(config);
  json.erase("hidden_act");
  json["hidden_activation"] = "gelu_pytorch_tanh";
  json["attention_bias"] = config.qkv_bias;
  json["query_pre_attn_scalar"] = static_cast<int64_t>(config.query_scalar);
  for (const auto& [name, cap] : {std::pair{"attn_logit_softcapping", config.score_cap},
                                  std::pair{"final_logit_softcapping", config.logit_cap}}) {
    json[name] = nullptr;
    if (cap != 0) json[name] = cap;
  }
  write_windows(config, json);
  return json;
}

}  // namespace

Architecture gemma2() { return {kGemma2, "gemma2", read_gemma2, gemma2_json}; }

}  // namespace coda::io
