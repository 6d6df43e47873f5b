// SPDX-License-Identifier: Apache-2.0
#include "models/llama.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "coda/error.h"
#include "models/experts.h"
#include "models/model_builder.h"
#include "models/rope_angles.h"
#include "models/rope_layout.h"

namespace coda {
namespace {

bool has_experts(const LlamaConfig& c, size_t layer) {
  return c.experts && (c.experts->layers.empty() || c.experts->layers[layer]);
}
int64_t layers_with_experts(const LlamaConfig& c) {
  if (!c.experts) return 0;
  const std::vector<bool>& flags = c.experts->layers;
  return flags.empty() ? c.layers : std::ranges::count(flags, true);
}

// "Qwen2" of "Qwen2ForCausalLM".
std::string title_of(const LlamaConfig& c) {
  if (c.architecture == LlamaConfig().architecture) return "LLaMA";
  return c.architecture.substr(0, c.architecture.find("ForCausalLM"));
}

// The parts of one model's layers, over its builder.
class Layers {
 public:
  Layers(ModelBuilder& m, const LlamaConfig& config, const ModelOptions& options)
      : m_(m), c_(config) {
    const int64_t length = options.length == 0 ? options.positions : options.length;
    for (size_t i = 0; i < static_cast<size_t>(c_.layers); ++i) {
      if (!rotates(i)) continue;
      RopeTables& tables = tables_[has_own_base(i)];
      if (tables.cos.graph != nullptr) continue;
      tables =
          rope_tables(m, has_own_base(i) ? "rope.window_" : "rope.",
                      rope_angles(c_, length, has_own_base(i)), options.positions, c_.head_dim);
    }
    if (turning_channels(c_) != c_.head_dim) order_ = m.indices("attention.order", row_order());
  }

  Value norm(const std::string& name, Value x) {
    const double offset = c_.unit_offset_norms ? 1 : 0;
    return rms_norm(x, m_.vector(name + ".weight", c_.hidden, 1 - offset), c_.eps, offset);
  }

  // x + attention, then + MLP.
  Value layer(size_t number, Value x) {
    const std::string name = "model.layers." + std::to_string(number) + ".";
    switch (c_.norms) {
      case NormPlace::before:
        x = x + attend(number, name, norm(name + "input_layernorm", x));
        return x + mlp(number, name, norm(name + "post_attention_layernorm", x));
      case NormPlace::after:
        x = x + norm(name + "post_attention_layernorm", attend(number, name, x));
        return x + norm(name + "post_feedforward_layernorm", mlp(number, name, x));
      case NormPlace::both: break;
    }
    const Value y = attend(number, name, norm(name + "input_layernorm", x));
    x = x + norm(name + "post_attention_layernorm", y);
    const Value z = mlp(number, name, norm(name + "pre_feedforward_layernorm", x));
    return x + norm(name + "post_feedforward_layernorm", z);
  }

 private:
  bool rotates(size_t layer) const { return c_.rotated.empty() || c_.rotated[layer]; }
  bool has_window(size_t layer) const {
    return c_.window != 0 && (c_.windowed.empty() || c_.windowed[layer]);
  }
  bool has_own_base(size_t layer) const { return has_window(layer) && c_.window_rope_theta != 0; }

  // x · weight[rows, columns of x]ᵀ + bias.
  Value product(const std::string& name, Value x, int64_t rows, int64_t cols, bool bias) {
    const Value y = linear(x, m_.matrix(name + ".weight", rows, cols));
    return bias ? y + m_.vector(name + ".bias", rows, 0) : y;
  }

  // Rows of qkv_proj where only a part of each head turns.
  std::vector<int32_t> row_order() const {
    std::vector<int32_t> order;
    for (int64_t head = 0; head < c_.heads + c_.kv_heads; ++head)
      add_turning_head(head * c_.head_dim, c_.head_dim, c_.rotary_dim, order);
    add_rows(std::ssize(order), c_.kv_heads * c_.head_dim, order);
    return order;
  }

  // q, k and v beside one another.
  Value concatenated_linear(const std::string& name, Value x, int64_t rows) {
    Value weight = m_.matrix(name + ".weight", rows, c_.hidden);
    const bool is_ordered = order_.graph != nullptr;
    if (is_ordered) weight = embedding(weight, order_);
    const Value y = linear(x, weight);
    if (!c_.qkv_bias) return y;
    const Value bias = m_.vector(name + ".bias", rows, 0);
    return y + (is_ordered ? transpose(embedding(transpose(bias), order_)) : bias);
  }

  // Queries or keys: their norm, then their positions.
  Value placed(size_t layer, const std::string& name, Value x, int64_t heads) {
    const double offset = c_.unit_offset_norms ? 1 : 0;
    if (c_.query_key_norm == QueryKeyNorm::row) {
      x = rms_norm(x, m_.vector(name + ".weight", heads * c_.head_dim, 1 - offset), c_.eps, offset);
    } else if (c_.query_key_norm == QueryKeyNorm::head) {
      const Value weight = m_.vector(name + ".weight", c_.head_dim, 1 - offset) + offset;
      const Value squares = group_sum(x * x, c_.head_dim) / static_cast<double>(c_.head_dim);
      x = x * group_repeat(rsqrt(squares + c_.eps), c_.head_dim) * repeat_columns(weight, heads);
    }
    return rotates(layer) ? rope(x, tables_[has_own_base(layer)], heads, c_.head_dim) : x;
  }

  Value attend(size_t number, const std::string& layer, Value x) {
    const std::string name = layer + "self_attn.";
    const int64_t q_width = c_.heads * c_.head_dim, kv_width = c_.kv_heads * c_.head_dim;
    Value q, k, v;
    if (c_.joined) {
      const Value all = concatenated_linear(name + "qkv_proj", x, q_width + 2 * kv_width);
      q = slice_columns(all, 0, q_width);
      k = slice_columns(all, q_width, kv_width);
      v = slice_columns(all, q_width + kv_width, kv_width);
    } else {
      q = product(name + "q_proj", x, q_width, c_.hidden, c_.qkv_bias);
      k = product(name + "k_proj", x, kv_width, c_.hidden, c_.qkv_bias);
      v = product(name + "v_proj", x, kv_width, c_.hidden, c_.qkv_bias);
    }
    AttentionOptions options{.heads = c_.heads,
                             .kv_heads = c_.kv_heads,
                             .head_dim = c_.head_dim,
                             .sequence = "T",
                             .window = has_window(number) ? c_.window : 0,
                             .soft_cap = c_.score_cap};
    if (c_.query_scalar != 0) options.scale = 1 / std::sqrt(c_.query_scalar);
    const Value y = attention(placed(number, name + "q_norm", q, c_.heads),
                              placed(number, name + "k_norm", k, c_.kv_heads), v, options);
    return product(name + "o_proj", y, c_.hidden, q_width, c_.output_bias);
  }

  Value mlp(size_t number, const std::string& layer, Value x) {
    if (has_experts(c_, number)) return mixture_of_experts(m_, *c_.experts, layer, x, c_.hidden);
    const std::string name = layer + "mlp.";
    Value gate, up;
    if (c_.joined) {
      const Value both = product(name + "gate_up_proj", x, 2 * c_.mlp, c_.hidden, c_.mlp_bias);
      gate = slice_columns(both, 0, c_.mlp);
      up = slice_columns(both, c_.mlp, c_.mlp);
    } else {
      gate = product(name + "gate_proj", x, c_.mlp, c_.hidden, c_.mlp_bias);
      up = product(name + "up_proj", x, c_.mlp, c_.hidden, c_.mlp_bias);
    }
    const Value a = c_.gelu ? geglu(gate, up) : swiglu(gate, up);
    return product(name + "down_proj", a, c_.hidden, c_.mlp, c_.mlp_bias);
  }

  ModelBuilder& m_;
  const LlamaConfig& c_;
  std::array<RopeTables, 2> tables_;  // of most layers, of those whose base is their own
  Value order_{};                     // of rows of qkv_proj, where it is not their own
};

}  // namespace

int64_t parameter_count(const LlamaConfig& c) {
  const int64_t q = c.heads * c.head_dim, kv = c.kv_heads * c.head_dim;
  int64_t layer = (2 * q + 2 * kv) * c.hidden;
  layer += (c.norms == NormPlace::both ? 4 : 2) * c.hidden;
  if (c.qkv_bias) layer += q + 2 * kv;
  if (c.output_bias) layer += c.hidden;
  if (c.query_key_norm == QueryKeyNorm::head) layer += 2 * c.head_dim;
  if (c.query_key_norm == QueryKeyNorm::row) layer += q + kv;
  const int64_t sparse = layers_with_experts(c);
  int64_t mlps = (c.layers - sparse) * 3 * c.mlp * c.hidden;
  if (c.mlp_bias) mlps += (c.layers - sparse) * (2 * c.mlp + c.hidden);
  if (c.experts) mlps += sparse * parameter_count(*c.experts, c.hidden);
  return c.layers * layer + mlps + ((c.tied ? 1 : 2) * c.vocab + 1) * c.hidden;
}

int64_t unused_by_a_token(const LlamaConfig& c) {
  const int64_t table = c.tied ? 0 : c.vocab * c.hidden;
  return table + (c.experts ? layers_with_experts(c) * unused_by_a_token(*c.experts, c.hidden) : 0);
}

int64_t expert_choices(const LlamaConfig& c) {
  return c.experts ? layers_with_experts(c) * c.experts->chosen : 0;
}

int64_t attention_columns(const LlamaConfig& c) { return c.heads * c.head_dim; }

int64_t longest_sequence(const LlamaConfig& config) {
  const auto* dynamic =
      config.rope_scaling ? std::get_if<DynamicRopeScaling>(&*config.rope_scaling) : nullptr;
  if (dynamic == nullptr) return config.max_positions;
  const double longest = dynamic->factor * static_cast<double>(config.max_positions);
  return static_cast<int64_t>(std::min(longest, 2147483647.0));
}

int64_t rope_length(const LlamaConfig& config, int64_t length) {
  if (!config.rope_scaling) return 1;
  if (const auto* s = std::get_if<LongRopeScaling>(&*config.rope_scaling))
    return length > s->original_max_positions ? s->original_max_positions + 1 : 1;
  const bool is_dynamic = std::holds_alternative<DynamicRopeScaling>(*config.rope_scaling);
  return is_dynamic && length > config.max_positions ? length : 1;
}

std::string description(const LlamaConfig& c) {
  return title_of(c) + ", " + std::to_string(c.layers) + " layers, hidden " +
         std::to_string(c.hidden) + ", " + std::to_string(c.heads) + " heads of " +
         std::to_string(c.head_dim) + " (" + std::to_string(c.kv_heads) + " key-value), " +
         (c.experts ? description(*c.experts) : "MLP " + std::to_string(c.mlp)) + ", vocabulary " +
         std::to_string(c.vocab) + (c.tied ? ", tied head" : "");
}

std::unique_ptr<ModelGraph> build(const LlamaConfig& config, const ModelOptions& options) {
  require_positions(options);
  ModelBuilder m(options, config.vocab, config.initializer_range);
  const Embedding tokens = m.embed("model.embed_tokens.weight", config.hidden, config.padding_row);
  Layers layers(m, config, options);
  Value x = tokens.rows;
  if (config.scaled_embedding) x = x * std::sqrt(static_cast<double>(config.hidden));
  for (int64_t i = 0; i < config.layers; ++i) x = layers.layer(static_cast<size_t>(i), x);
  const Value h = layers.norm("model.norm", x);
  const Value head =
      config.tied ? tokens.table : m.matrix("lm_head.weight", config.vocab, config.hidden);
  const Value logits = linear(h, head);
  return m.finish(config.logit_cap == 0 ? logits : soft_cap(logits, config.logit_cap));
}

}  // namespace coda
