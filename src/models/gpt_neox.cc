// SPDX-License-Identifier: Apache-2.0
// One weight makes q, k and v of each head beside one another, and RoPE turns only the first
// channels of a head. So the rows of that weight are gathered in another order before its product:
// all q, all k, all v, and the channels of q and k as rope_layout.h has them.
#include "models/gpt_neox.h"

#include <cmath>

#include "coda/error.h"
#include "models/model_builder.h"
#include "models/rope_layout.h"

namespace coda {
namespace {

class NeoxLayers {
 public:
  NeoxLayers(ModelBuilder& m, const GptNeoxConfig& config, int64_t positions)
      : m_(m), c_(config), head_dim_(config.hidden / config.heads) {
    RopeAngles angles;
    for (int64_t pair = 0; pair < c_.rotary_dim / 2; ++pair) {
      const double power = -2.0 * static_cast<double>(pair) / static_cast<double>(c_.rotary_dim);
      angles.steps.push_back(std::pow(c_.rope_theta, power));
    }
    rope_ = rope_tables(m_, "rope.", angles, positions, head_dim_);
    order_ = m_.indices("attention.order", row_order());
  }

  Value norm(const std::string& name, Value x) {
    const Value weight = m_.vector(name + ".weight", c_.hidden, 1);
    return layer_norm(x, weight, m_.vector(name + ".bias", c_.hidden, 0), c_.eps);
  }

  Value layer(const std::string& name, Value x) {
    const Value y = attend(name + "attention.", norm(name + "input_layernorm", x));
    const std::string second = name + "post_attention_layernorm";
    if (c_.parallel) return x + y + mlp(name + "mlp.", norm(second, x));
    x = x + y;
    return x + mlp(name + "mlp.", norm(second, x));
  }

 private:
  // Rows of query_key_value in the order in which they are multiplied: its own is, of each head,
  // q, k and v.
  std::vector<int32_t> row_order() const {
    std::vector<int32_t> order;
    for (int64_t part = 0; part < 3; ++part) {
      for (int64_t head = 0; head < c_.heads; ++head) {
        const int64_t first = (3 * head + part) * head_dim_;
        if (part == 2) {
          add_rows(first, head_dim_, order);
        } else {
          add_turning_head(first, head_dim_, c_.rotary_dim, order);
        }
      }
    }
    return order;
  }

  Value bias(const std::string& name, int64_t size) { return m_.vector(name + ".bias", size, 0); }

  Value attend(const std::string& name, Value x) {
    const int64_t d = c_.hidden;
    const Value weight = embedding(m_.matrix(name + "query_key_value.weight", 3 * d, d), order_);
    Value all = linear(x, weight);
    if (c_.attention_bias) {
      const Value own = bias(name + "query_key_value", 3 * d);
      all = all + transpose(embedding(transpose(own), order_));
    }
    const auto turned = [&](Value v) { return rope(v, rope_, c_.heads, head_dim_); };
    const Value y = attention(
        turned(slice_columns(all, 0, d)), turned(slice_columns(all, d, d)),
        slice_columns(all, 2 * d, d),
        {.heads = c_.heads, .kv_heads = c_.heads, .head_dim = head_dim_, .sequence = "T"});
    const Value out = linear(y, m_.matrix(name + "dense.weight", d, d));
    return c_.attention_bias ? out + bias(name + "dense", d) : out;
  }

  Value mlp(const std::string& name, Value x) {
    const Value in = m_.matrix(name + "dense_h_to_4h.weight", c_.mlp, c_.hidden);
    const Value h = linear(x, in) + bias(name + "dense_h_to_4h", c_.mlp);
    const Value a = c_.exact_gelu ? gelu(h) : gelu_tanh(h);
    const Value out = m_.matrix(name + "dense_4h_to_h.weight", c_.hidden, c_.mlp);
    return linear(a, out) + bias(name + "dense_4h_to_h", c_.hidden);
  }

  ModelBuilder& m_;
  const GptNeoxConfig& c_;
  int64_t head_dim_;
  RopeTables rope_{};
  Value order_{};
};

}  // namespace

std::unique_ptr<ModelGraph> build(const GptNeoxConfig& config, const ModelOptions& options) {
  require_positions(options);
  ModelBuilder m(options, config.vocab, config.initializer_range);
  const Embedding tokens = m.embed("gpt_neox.embed_in.weight", config.hidden);
  NeoxLayers layers(m, config, options.positions);
  Value x = tokens.rows;
  for (int64_t i = 0; i < config.layers; ++i)
    x = layers.layer("gpt_neox.layers." + std::to_string(i) + ".", x);
  const Value h = layers.norm("gpt_neox.final_layer_norm", x);
  return m.finish(linear(
      h, config.tied ? tokens.table : m.matrix("embed_out.weight", config.vocab, config.hidden)));
}

int64_t parameter_count(const GptNeoxConfig& c) {
  int64_t layer = (4 * c.hidden + 2 * c.mlp) * c.hidden;
  layer += 5 * c.hidden + c.mlp;  // two norms, the second bias of the MLP; the first
  if (c.attention_bias) layer += 4 * c.hidden;
  return c.layers * layer + ((c.tied ? 1 : 2) * c.vocab + 2) * c.hidden;
}

int64_t unused_by_a_token(const GptNeoxConfig& c) { return c.tied ? 0 : c.vocab * c.hidden; }

int64_t attention_columns(const GptNeoxConfig& c) { return c.hidden; }

std::string description(const GptNeoxConfig& c) {
  return "GPT-NeoX, " + std::to_string(c.layers) + " layers, hidden " + std::to_string(c.hidden) +
         ", " + std::to_string(c.heads) + " heads, MLP " + std::to_string(c.mlp) + ", vocabulary " +
         std::to_string(c.vocab) + (c.tied ? ", tied head" : "");
}

int64_t longest_sequence(const GptNeoxConfig& config) { return config.max_positions; }

}  // namespace coda
