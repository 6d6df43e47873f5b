// SPDX-License-Identifier: Apache-2.0
// GPTNeoXForCausalLM's config.json (Pythia).
#include "io/architecture.h"

namespace coda::io {
namespace {

using nlohmann::ordered_json;

// transformers 5 has rope_parameters with all of it; 4 has rotary_emb_base and rotary_pct.
void read_positions(const Settings& settings, GptNeoxConfig& config) {
  double share = settings.number("rotary_pct", 0.25);
  config.rope_theta = settings.number("rotary_emb_base", 10000.0);
  for (const char* name : {"rope_parameters", "rope_scaling"}) {
    const nlohmann::json* object = settings.find(name);
    if (object == nullptr) continue;
    const Settings rope(*object, settings.source() + ": " + name);
    if (rope.word("rope_type", "default") != "default")
      rope.refuse("rope_type", "only 'default' is supported for GPT-NeoX");
    config.rope_theta = rope.number("rope_theta", config.rope_theta);
    share = rope.number("partial_rotary_factor", share);
  }
  if (config.heads < 1 || config.hidden % config.heads != 0) return;  // refused when it is checked
  if (!(share > 0 && share <= 1))
    throw Error(settings.source() + ": rotary_pct is " + nlohmann::json(share).dump() +
                ", but must be above 0 and at most 1");
  config.rotary_dim =
      static_cast<int64_t>(static_cast<double>(config.hidden / config.heads) * share);
}

ModelConfig read_gpt_neox(const Settings& settings) {
  GptNeoxConfig config;
  config.layers = settings.whole("num_hidden_layers");
  config.hidden = settings.whole("hidden_size");
  config.heads = settings.whole("num_attention_heads");
  config.mlp = settings.whole("intermediate_size");
  config.vocab = settings.whole("vocab_size");
  config.max_positions = settings.whole("max_position_embeddings", 2048);
  config.eps = settings.number("layer_norm_eps", 1e-5);
  config.parallel = settings.flag("use_parallel_residual", true);
  config.attention_bias = settings.flag("attention_bias", true);
  config.tied = settings.flag("tie_word_embeddings", false);
  const std::string activation = settings.word("hidden_act", "gelu");
  config.exact_gelu = activation == "gelu";
  if (!config.exact_gelu && activation != "gelu_new" && activation != "gelu_pytorch_tanh")
    settings.refuse("hidden_act", "only 'gelu', 'gelu_new' and 'gelu_pytorch_tanh' are supported");
  read_positions(settings, config);
  return config;
}

ordered_json gpt_neox_json(const ModelConfig& of) {
  const auto& config = std::get<GptNeoxConfig>(of);
  // Readers multiply and cut to a whole number.
  const double head = static_cast<double>(config.hidden / config.heads);
  double share = static_cast<double>(config.rotary_dim) / head;
  if (static_cast<int64_t>(head * share) != config.rotary_dim)
    share = (static_cast<double>(config.rotary_dim) + 0.5) / head;
  return {{"vocab_size", config.vocab},
          {"hidden_size", config.hidden},
          {"intermediate_size", config.mlp},
          {"num_hidden_layers", config.layers},
          {"num_attention_heads", config.heads},
          {"hidden_act", config.exact_gelu ? "gelu" : "gelu_new"},
          {"max_position_embeddings", config.max_positions},
          {"layer_norm_eps", config.eps},
          {"rotary_pct", share},
          {"rotary_emb_base", config.rope_theta},
          {"use_parallel_residual", config.parallel},
          {"attention_bias", config.attention_bias},
          {"attention_dropout", 0.0},
          {"hidden_dropout", 0.0},
          {"tie_word_embeddings", config.tied}};
}

}  // namespace

Architecture gpt_neox() { return {"GPTNeoXForCausalLM", "gpt_neox", read_gpt_neox, gpt_neox_json}; }

}  // namespace coda::io
