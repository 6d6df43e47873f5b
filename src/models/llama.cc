// SPDX-License-Identifier: Apache-2.0
#include "models/llama.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

#include "coda/error.h"
#include "models/model_builder.h"

namespace coda {
namespace {

// One decoder layer: x + o(attention(norm(x))), then x + down(swiglu(norm(x))).
Value layer(ModelBuilder& m, const LlamaConfig& c, const RopeTables& tables,
            const std::string& name, Value x) {
  const std::string attn = name + "self_attn.";
  const std::string mlp = name + "mlp.";
  const int64_t heads_width = c.heads * c.head_dim;
  const int64_t kv_width = c.kv_heads * c.head_dim;
  auto weight = [&](const std::string& of, int64_t rows, int64_t cols) {
    return m.matrix(of + ".weight", rows, cols);
  };
  auto norm = [&](const std::string& of, Value v) {
    return rms_norm(v, m.vector(name + of + ".weight", c.hidden, 1), c.eps);
  };

  const Value h = norm("input_layernorm", x);
  const Value q = linear(h, weight(attn + "q_proj", heads_width, c.hidden));
  const Value k = linear(h, weight(attn + "k_proj", kv_width, c.hidden));
  const Value v = linear(h, weight(attn + "v_proj", kv_width, c.hidden));
  const Value y = attention(
      rope(q, tables, c.heads, c.head_dim), rope(k, tables, c.kv_heads, c.head_dim), v,
      {.heads = c.heads, .kv_heads = c.kv_heads, .head_dim = c.head_dim, .sequence = "T"});
  x = x + linear(y, weight(attn + "o_proj", c.hidden, heads_width));

  const Value g = norm("post_attention_layernorm", x);
  const Value gate = linear(g, weight(mlp + "gate_proj", c.mlp, c.hidden));
  const Value up = linear(g, weight(mlp + "up_proj", c.mlp, c.hidden));
  return x + linear(swiglu(gate, up), weight(mlp + "down_proj", c.hidden, c.mlp));
}

RopeTables rope_tables(ModelBuilder& m, const LlamaConfig& config, int64_t positions) {
  const std::vector<double> steps = rope_frequencies(config);
  std::vector<float> cos;
  std::vector<float> sin;
  cos.reserve(static_cast<size_t>(positions) * steps.size());
  sin.reserve(cos.capacity());
  for (int64_t p = 0; p < positions; ++p) {
    for (double step : steps) {
      cos.push_back(static_cast<float>(std::cos(static_cast<double>(p) * step)));
      sin.push_back(static_cast<float>(std::sin(static_cast<double>(p) * step)));
    }
  }
  const int64_t cols = config.head_dim / 2;
  return {m.table("rope.cos", positions, cols, std::move(cos)),
          m.table("rope.sin", positions, cols, std::move(sin)), m.model().positions};
}

}  // namespace

std::vector<double> rope_frequencies(const LlamaConfig& config) {
  std::vector<double> steps;
  for (int64_t pair = 0; pair < config.head_dim / 2; ++pair) {
    double step = std::pow(config.rope_theta,
                           -2.0 * static_cast<double>(pair) / static_cast<double>(config.head_dim));
    if (config.rope_scaling) {
      // Short waves stay, long ones are stretched by `factor`, those between the two bands in
      // between.
      const Llama3RopeScaling& s = *config.rope_scaling;
      const double turns =
          static_cast<double>(s.original_max_positions) * step / (2 * std::numbers::pi);
      const double kept = (turns - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor);
      const double share = std::clamp(kept, 0.0, 1.0);
      step *= share + (1 - share) / s.factor;
    }
    steps.push_back(step);
  }
  return steps;
}

std::unique_ptr<ModelGraph> build_llama(const LlamaConfig& config, const ModelOptions& options) {
  require(options.positions >= 1,
          "build_model: set ModelOptions::positions to the longest sequence that will be run; " +
              std::to_string(options.positions) + " positions leave the RoPE tables empty");
  ModelBuilder m(options, config.vocab);
  const Value embeddings = m.matrix("model.embed_tokens.weight", config.vocab, config.hidden);
  const RopeTables tables = rope_tables(m, config, options.positions);
  Value x = embedding(embeddings, m.model().ids);
  for (int64_t i = 0; i < config.layers; ++i) {
    x = layer(m, config, tables, "model.layers." + std::to_string(i) + ".", x);
  }
  const Value h = rms_norm(x, m.vector("model.norm.weight", config.hidden, 1), config.eps);
  const Value head =
      config.tied ? embeddings : m.matrix("lm_head.weight", config.vocab, config.hidden);
  return m.finish(linear(h, head));
}

}  // namespace coda
