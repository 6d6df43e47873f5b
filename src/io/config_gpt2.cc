// SPDX-License-Identifier: Apache-2.0
// GPT2LMHeadModel's config.json.
#include "io/architecture.h"
#include "io/config_checker.h"

namespace coda::io {
namespace {

Gpt2Config read_gpt2(const Settings& settings) {
  Gpt2Config config;
  const std::string activation = settings.word("activation_function", "gelu_new");
  config.exact_gelu = activation == "gelu";
  if (!config.exact_gelu && activation != "gelu_new" && activation != "gelu_pytorch_tanh") {
    settings.refuse("activation_function",
                    "only 'gelu', 'gelu_new' and 'gelu_pytorch_tanh' are supported");
  }
  config.tied = settings.flag("tie_word_embeddings", true);
  config.initializer_range = initializer_range_of(settings);
  settings.must_be("scale_attn_weights", true, "scores are divided by the root of the head size");
  settings.must_be("scale_attn_by_inverse_layer_idx", false, "all layers scale alike");
  settings.must_be("add_cross_attention", false, "there is no encoder");
  config.layers = settings.whole("n_layer");
  config.hidden = settings.whole("n_embd");
  config.heads = settings.whole("n_head");
  config.vocab = settings.whole("vocab_size");
  config.positions = settings.whole("n_positions", 1024);
  if (settings.find("n_inner") != nullptr) {
    config.mlp = settings.whole("n_inner");
  } else if (__builtin_mul_overflow(config.hidden, int64_t{4}, &config.mlp)) {
    settings.refuse("n_embd", "must be from 1 to 2147483647");
  }
  config.eps = settings.number("layer_norm_epsilon", 1e-5);
  return config;
}

nlohmann::ordered_json write_gpt2(const Gpt2Config& config) {
  return {
      {"vocab_size", config.vocab},
      {"n_embd", config.hidden},
      {"n_layer", config.layers},
      {"n_head", config.heads},
      {"n_positions", config.positions},
      {"n_inner", config.mlp},
      {"activation_function", config.exact_gelu ? "gelu" : "gelu_new"},
      {"layer_norm_epsilon", config.eps},
      {"attn_pdrop", 0.0},
      {"embd_pdrop", 0.0},
      {"resid_pdrop", 0.0},
      {"initializer_range", config.initializer_range},
      {"tie_word_embeddings", config.tied},
      {"pad_token_id", nullptr},
  };
}

void check_gpt2(const Gpt2Config& config, const std::string& source) {
  const ConfigChecker must{source};
  must.layers("n_layer", config.layers);
  must.size("n_embd", config.hidden);
  must.size("n_head", config.heads);
  must.size("vocab_size", config.vocab);
  must.size("n_positions", config.positions);
  must.size("n_inner", config.mlp);
  must.divides("n_head", config.heads, "n_embd", config.hidden);
  must.product("n_inner", config.mlp, "n_embd", config.hidden);
  must.product("vocab_size", config.vocab, "n_embd", config.hidden);
  must.product("n_positions", config.positions, "n_embd", config.hidden);
  must.product("n_embd * 3", 3 * config.hidden, "n_embd", config.hidden);
  must.weights(config);
  must.positive("layer_norm_epsilon", config.eps);
  must.positive("initializer_range", config.initializer_range);
}

}  // namespace

Architecture gpt2() {
  return of_own_kind("GPT2LMHeadModel", "gpt2", read_gpt2, write_gpt2, check_gpt2);
}

}  // namespace coda::io
