// SPDX-License-Identifier: Apache-2.0
#include "models/gpt2.h"

#include <cmath>

#include "models/model_builder.h"

namespace coda {
namespace {

Value norm(ModelBuilder& m, const Gpt2Config& c, const std::string& name, Value x) {
  const Value weight = m.vector(name + ".weight", c.hidden, 1);
  return layer_norm(x, weight, m.vector(name + ".bias", c.hidden, 0), c.eps);
}

// x · weight[in, out] + bias.
Value conv(ModelBuilder& m, const std::string& name, Value x, int64_t in, int64_t out,
           double scale = 1) {
  const Value weight = m.matrix(name + ".weight", in, out, scale);
  return conv1d(x, weight) + m.vector(name + ".bias", out, 0);
}

Value layer(ModelBuilder& m, const Gpt2Config& c, const std::string& name, Value x) {
  const int64_t d = c.hidden;
  // What is added to the residual stream starts smaller, as in the original.
  const double residual = 1 / std::sqrt(2.0 * static_cast<double>(c.layers));
  const Value qkv = conv(m, name + "attn.c_attn", norm(m, c, name + "ln_1", x), d, 3 * d);
  const Value y =
      attention(slice_columns(qkv, 0, d), slice_columns(qkv, d, d), slice_columns(qkv, 2 * d, d),
                {.heads = c.heads, .kv_heads = c.heads, .head_dim = d / c.heads, .sequence = "T"});
  x = x + conv(m, name + "attn.c_proj", y, d, d, residual);
  const Value h = conv(m, name + "mlp.c_fc", norm(m, c, name + "ln_2", x), d, c.mlp);
  const Value a = c.exact_gelu ? gelu(h) : gelu_tanh(h);
  return x + conv(m, name + "mlp.c_proj", a, c.mlp, d, residual);
}

}  // namespace

std::unique_ptr<ModelGraph> build(const Gpt2Config& config, const ModelOptions& options) {
  ModelBuilder m(options, config.vocab, config.initializer_range);
  const Embedding tokens = m.embed("transformer.wte.weight", config.hidden);
  const Value places = m.matrix("transformer.wpe.weight", config.positions, config.hidden);
  Value x = tokens.rows + embedding(places, m.model().positions);
  for (int64_t i = 0; i < config.layers; ++i) {
    x = layer(m, config, "transformer.h." + std::to_string(i) + ".", x);
  }
  const Value h = norm(m, config, "transformer.ln_f", x);
  return m.finish(linear(
      h, config.tied ? tokens.table : m.matrix("lm_head.weight", config.vocab, config.hidden)));
}

int64_t parameter_count(const Gpt2Config& c) {
  const int64_t matrices = (4 * c.hidden + 2 * c.mlp) * c.hidden;
  const int64_t vectors = 9 * c.hidden + c.mlp;  // two norms, four biases
  return c.layers * (matrices + vectors) +
         ((c.tied ? 1 : 2) * c.vocab + c.positions + 2) * c.hidden;
}

int64_t unused_by_a_token(const Gpt2Config& c) {
  return (c.positions + (c.tied ? 0 : c.vocab)) * c.hidden;
}

int64_t attention_columns(const Gpt2Config& c) { return c.hidden; }

std::string description(const Gpt2Config& c) {
  return "GPT-2, " + std::to_string(c.layers) + " layers, hidden " + std::to_string(c.hidden) +
         ", " + std::to_string(c.heads) + " heads, MLP " + std::to_string(c.mlp) + ", vocabulary " +
         std::to_string(c.vocab) + ", " + std::to_string(c.positions) + " positions";
}

int64_t longest_sequence(const Gpt2Config& config) { return config.positions; }

}  // namespace coda
