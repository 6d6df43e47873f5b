// SPDX-License-Identifier: Apache-2.0
// GPT2LMHeadModel's config.json.
#include "io/architecture.h"

namespace coda::io {
namespace {

ModelConfig read_gpt2(const Settings& settings) {
  Gpt2Config config;
  const std::string activation = settings.word("activation_function", "gelu_new");
  config.exact_gelu = activation == "gelu";
  if (!config.exact_gelu && activation != "gelu_new" && activation != "gelu_pytorch_tanh") {
    settings.refuse("activation_function",
                    "only 'gelu', 'gelu_new' and 'gelu_pytorch_tanh' are supported");
  }
  settings.must_be("tie_word_embeddings", true, "the head's weight is the embedding's");
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

nlohmann::ordered_json gpt2_json(const ModelConfig& of) {
  const auto& config = std::get<Gpt2Config>(of);
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
      {"tie_word_embeddings", true},
  };
}

}  // namespace

Architecture gpt2() { return {"GPT2LMHeadModel", "gpt2", read_gpt2, gpt2_json}; }

}  // namespace coda::io
