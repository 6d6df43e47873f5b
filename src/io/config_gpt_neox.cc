// SPDX-License-Identifier: Apache-2.0
// GPTNeoXForCausalLM's config.json (Pythia).
#include "io/architecture.h"
#include "io/config_checker.h"
#include "io/config_rope.h"

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

GptNeoxConfig read_gpt_neox(const Settings& settings) {
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
  config.initializer_range = initializer_range_of(settings);
  config.tied = settings.flag("tie_word_embeddings", false);
  const std::string activation = settings.word("hidden_act", "gelu");
  config.exact_gelu = activation == "gelu";
  if (!config.exact_gelu && activation != "gelu_new" && activation != "gelu_pytorch_tanh")
    settings.refuse("hidden_act", "only 'gelu', 'gelu_new' and 'gelu_pytorch_tanh' are supported");
  read_positions(settings, config);
  return config;
}

ordered_json write_gpt_neox(const GptNeoxConfig& config) {
  return {{"vocab_size", config.vocab},
          {"hidden_size", config.hidden},
          {"intermediate_size", config.mlp},
          {"num_hidden_layers", config.layers},
          {"num_attention_heads", config.heads},
          {"hidden_act", config.exact_gelu ? "gelu" : "gelu_new"},
          {"max_position_embeddings", config.max_positions},
          {"layer_norm_eps", config.eps},
          {"rotary_pct", rotary_share(config.rotary_dim, config.hidden / config.heads)},
          {"rotary_emb_base", config.rope_theta},
          {"use_parallel_residual", config.parallel},
          {"attention_bias", config.attention_bias},
          {"attention_dropout", 0.0},
          {"hidden_dropout", 0.0},
          {"initializer_range", config.initializer_range},
          {"pad_token_id", nullptr},
          {"tie_word_embeddings", config.tied}};
}

void check_gpt_neox(const GptNeoxConfig& config, const std::string& source) {
  const ConfigChecker must{source};
  must.layers("num_hidden_layers", config.layers);
  must.size("hidden_size", config.hidden);
  must.size("num_attention_heads", config.heads);
  must.size("intermediate_size", config.mlp);
  must.size("vocab_size", config.vocab);
  must.size("max_position_embeddings", config.max_positions);
  must.divides("num_attention_heads", config.heads, "hidden_size", config.hidden);
  must.product("intermediate_size", config.mlp, "hidden_size", config.hidden);
  must.product("vocab_size", config.vocab, "hidden_size", config.hidden);
  must.product("hidden_size * 3", 3 * config.hidden, "hidden_size", config.hidden);
  must.weights(config);
  must.positive("layer_norm_eps", config.eps);
  must.positive("initializer_range", config.initializer_range);
  must.positive("rotary_emb_base", config.rope_theta);
  const int64_t head = config.hidden / config.heads;
  require(head % 2 == 0 && config.rotary_dim >= 2 && config.rotary_dim <= head &&
              config.rotary_dim % 2 == 0,
          source + ": rotary_pct turns " + std::to_string(config.rotary_dim) +
              " channels of heads of " + std::to_string(head) +
              ", but both must be even and at least 2 channels turn: change one of the two");
}

}  // namespace

Architecture gpt_neox() {
  return of_own_kind("GPTNeoXForCausalLM", "gpt_neox", read_gpt_neox, write_gpt_neox,
                     check_gpt_neox);
}

}  // namespace coda::io
