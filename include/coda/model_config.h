// SPDX-License-Identifier: Apache-2.0
// Sizes and settings of the supported models: plain values, as in a config.json or on a command
// line. Checkpoints store them as config.json.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "coda/api.h"

namespace CODA_API coda {

// LLaMA 3's RoPE scaling: stretches wavelengths beyond the context of the first training.
struct Llama3RopeScaling {
  double factor = 8;
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  int64_t original_max_positions = 8192;

  friend bool operator==(const Llama3RopeScaling&, const Llama3RopeScaling&) = default;
};

// All angles are divided by `factor`.
struct LinearRopeScaling {
  double factor = 1;

  friend bool operator==(const LinearRopeScaling&, const LinearRopeScaling&) = default;
};

// "Dynamic NTK": nothing changes up to max_positions. A model built for longer sequences (up to
// `factor` times as long) uses the base that transformers computes for the longest of them.
struct DynamicRopeScaling {
  double factor = 1;

  friend bool operator==(const DynamicRopeScaling&, const DynamicRopeScaling&) = default;
};

// YaRN (Peng et al. 2023): pairs that rotate more than `beta_fast` times over the original context
// keep their angles; pairs that rotate less than `beta_slow` times have their angles divided by
// `factor`. Cosines and sines are multiplied by `attention_factor`.
struct YarnRopeScaling {
  double factor = 1;
  double attention_factor = 1;
  double beta_fast = 32;
  double beta_slow = 1;
  bool truncate = true;  // the band between both limits ends at whole pairs
  int64_t original_max_positions = 8192;

  friend bool operator==(const YarnRopeScaling&, const YarnRopeScaling&) = default;
};

// LongRoPE (Ding et al. 2024), as in Phi-3: the angle of each pair is divided by its own factor,
// from one list up to the original context and from another list for longer sequences. Cosines and
// sines are multiplied by `attention_factor`.
struct LongRopeScaling {
  std::vector<double> short_factors{};  // [rotary channels / 2]
  std::vector<double> long_factors{};   // [rotary channels / 2]
  double attention_factor = 1;
  int64_t original_max_positions = 4096;

  friend bool operator==(const LongRopeScaling&, const LongRopeScaling&) = default;
};

using RopeScaling = std::variant<Llama3RopeScaling, LinearRopeScaling, DynamicRopeScaling,
                                 YarnRopeScaling, LongRopeScaling>;

// RMSNorm of queries and keys: none, per head, or over the whole row.
enum class QueryKeyNorm : uint8_t { none, head, row };

// Where a sublayer has its RMSNorm: on its input, on its output, or on both.
enum class NormPlace : uint8_t { before, after, both };

// Names of an expert's weights: "mlp.experts.0.gate_proj" and so on, or Mixtral's
// "block_sparse_moe.experts.0.w1".
enum class ExpertNames : uint8_t { mlp, block_sparse_moe };

// A mixture of experts that replaces the MLP: a router and `count` MLPs of the same kind.
struct Experts {
  int64_t count = 0;
  int64_t chosen = 0;       // experts per token, at most count
  int64_t mlp = 0;          // intermediate size of an expert
  bool normalised = false;  // the weights of the chosen experts are normalised to sum 1
  ExpertNames names = ExpertNames::mlp;
  std::vector<bool> layers{};  // which layers have experts; empty: all

  friend bool operator==(const Experts&, const Experts&) = default;
};

// Decoders with RMSNorm, half-split RoPE, grouped key-value heads and a gated MLP. The settings
// from `architecture` on distinguish the models of this family; their defaults are LLaMA.
struct LlamaConfig {
  int64_t layers = 0;
  int64_t hidden = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;  // divides heads
  int64_t head_dim = 0;  // even; heads * head_dim may differ from hidden
  int64_t mlp = 0;
  int64_t vocab = 0;
  double eps = 1e-6;
  double rope_theta = 10000;
  std::optional<RopeScaling> rope_scaling{};
  bool tied = false;  // the head's weight is the embedding's
  int64_t max_positions = 2048;
  double initializer_range = 0.02;       // standard deviation of random weight matrices
  std::optional<int64_t> padding_row{};  // of the embedding: lookups give it no gradient
  int64_t rotary_dim = 0;                // leading channels of a head that are rotated; 0: all

  std::string architecture = "LlamaForCausalLM";  // the name in config.json
  bool qkv_bias = false;                          // q, k and v have a bias
  bool output_bias = false;                       // attention's output has a bias
  bool mlp_bias = false;                          // gate, up and down have a bias
  bool joined = false;  // fused weights: one for q, k, v and one for gate, up
  bool gelu = false;    // the gate's activation is tanh GELU instead of SiLU
  QueryKeyNorm query_key_norm = QueryKeyNorm::none;
  NormPlace norms = NormPlace::before;
  bool unit_offset_norms = false;    // norms multiply by 1 + weight
  bool scaled_embedding = false;     // multiplied by sqrt(hidden)
  double query_scalar = 0;           // scores are divided by its square root; 0: head_dim's
  double score_cap = 0;              // soft cap of attention scores; 0: none
  double logit_cap = 0;              // soft cap of logits; 0: none
  int64_t window = 0;                // number of tokens that a token sees, including itself; 0: all
  double window_rope_theta = 0;      // of plain RoPE in windowed layers; 0: as in the other layers
  std::vector<bool> windowed{};      // which layers have the window; empty: all
  std::vector<bool> rotated{};       // which layers have RoPE; empty: all
  std::optional<Experts> experts{};  // none: the MLP in all layers

  friend bool operator==(const LlamaConfig&, const LlamaConfig&) = default;
};

// GPT2LMHeadModel: LayerNorm and biases, learned positions, GELU.
struct Gpt2Config {
  int64_t layers = 0;
  int64_t hidden = 0;
  int64_t heads = 0;  // divides hidden
  int64_t vocab = 0;
  int64_t positions = 1024;
  int64_t mlp = 0;
  double eps = 1e-5;
  bool exact_gelu = false;  // by erf; else in its tanh form
  bool tied = true;         // the head's weight is the embedding's
  double initializer_range = 0.02;

  friend bool operator==(const Gpt2Config&, const Gpt2Config&) = default;
};

// GPTNeoXForCausalLM (Pythia): LayerNorm and biases, RoPE on the first channels of each head, an
// untied head, attention and MLP in parallel.
struct GptNeoxConfig {
  int64_t layers = 0;
  int64_t hidden = 0;
  int64_t heads = 0;  // divides hidden
  int64_t mlp = 0;
  int64_t vocab = 0;
  int64_t max_positions = 2048;
  int64_t rotary_dim = 0;  // channels of a head that are rotated: even
  double rope_theta = 10000;
  double eps = 1e-5;
  bool parallel = true;  // attention and MLP read the same x; false: one after the other
  bool attention_bias = true;
  bool exact_gelu = true;  // by erf; else in its tanh form
  bool tied = false;
  double initializer_range = 0.02;

  friend bool operator==(const GptNeoxConfig&, const GptNeoxConfig&) = default;
};

using ModelConfig = std::variant<LlamaConfig, Gpt2Config, GptNeoxConfig>;

}  // namespace CODA_API coda
