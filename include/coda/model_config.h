// SPDX-License-Identifier: Apache-2.0
// The sizes and settings of the models that have a graph builder: plain values, as a config.json or
// a command line gives them. checkpoints keep them as config.json.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "coda/api.h"

namespace CODA_API coda {

// How LLaMA 3 stretches the wavelengths of RoPE beyond the context it was first trained for.
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

// "Dynamic NTK": nothing changes up to max_positions; a model that is built for longer sequences,
// of up to `factor` times that, has the base that transformers takes for the longest of them.
struct DynamicRopeScaling {
  double factor = 1;

  friend bool operator==(const DynamicRopeScaling&, const DynamicRopeScaling&) = default;
};

// YaRN (Peng et al. 2023): pairs that turn more than `beta_fast` times over the first context keep
// their angles, those that turn less than `beta_slow` times have theirs divided by `factor`.
// Cosines and sines are multiplied by `attention_factor`.
struct YarnRopeScaling {
  double factor = 1;
  double attention_factor = 1;
  double beta_fast = 32;
  double beta_slow = 1;
  bool truncate = true;  // the band between the two ends at whole pairs
  int64_t original_max_positions = 8192;

  friend bool operator==(const YarnRopeScaling&, const YarnRopeScaling&) = default;
};

// LongRoPE (Ding et al. 2024), as Phi-3 has it: each pair has a factor of its own by which its
// angle is divided, from one list, or from the other for sequences longer than the first context.
// Cosines and sines are multiplied by `attention_factor`.
struct LongRopeScaling {
  std::vector<double> short_factors{};  // [channels that turn / 2]
  std::vector<double> long_factors{};   // [channels that turn / 2]
  double attention_factor = 1;
  int64_t original_max_positions = 4096;

  friend bool operator==(const LongRopeScaling&, const LongRopeScaling&) = default;
};

using RopeScaling = std::variant<Llama3RopeScaling, LinearRopeScaling, DynamicRopeScaling,
                                 YarnRopeScaling, LongRopeScaling>;

// RMSNorms of queries and keys: none, of each head by itself, of the whole row.
enum class QueryKeyNorm : uint8_t { none, head, row };

// Where a sublayer has its RMSNorm: of what it reads, of what it adds, of both.
enum class NormPlace : uint8_t { before, after, both };

// How an expert's weights are called: "mlp.experts.0.gate_proj" and so on, or as Mixtral has them,
// "block_sparse_moe.experts.0.w1".
enum class ExpertNames : uint8_t { mlp, block_sparse_moe };

// A mixture of experts in the place of the MLP: a router, and `count` MLPs of its kind.
struct Experts {
  int64_t count = 0;
  int64_t chosen = 0;       // of a token, at most count
  int64_t mlp = 0;          // columns of an expert
  bool normalised = false;  // the weights of those that are chosen are made to add up to 1
  ExpertNames names = ExpertNames::mlp;
  std::vector<bool> layers{};  // which layers have experts; empty: all

  friend bool operator==(const Experts&, const Experts&) = default;
};

// Decoders with RMSNorm, half-split RoPE, grouped key-value heads and a gated MLP. The settings
// from `architecture` on say what sets one from the other; as they start, it is LLaMA.
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
  double initializer_range = 0.02;       // the deviation of random weight matrices
  std::optional<int64_t> padding_row{};  // of the embedding: lookups give it no gradient
  int64_t rotary_dim = 0;                // channels of a head that turn, the first; 0: all

  std::string architecture = "LlamaForCausalLM";  // what config.json says it is
  bool qkv_bias = false;                          // of the products that make q, k and v
  bool output_bias = false;                       // of attention's output
  bool mlp_bias = false;                          // of gate, up and down
  bool joined = false;                            // one weight for q, k, v, one for gate, up
  bool gelu = false;                              // the gate's activation: tanh GELU, not SiLU
  QueryKeyNorm query_key_norm = QueryKeyNorm::none;
  NormPlace norms = NormPlace::before;
  bool unit_offset_norms = false;    // norms multiply by 1 + weight
  bool scaled_embedding = false;     // by the root of hidden
  double query_scalar = 0;           // scores are divided by its root; 0: by that of head_dim
  double score_cap = 0;              // of attention's scores; 0: none
  double logit_cap = 0;              // 0: none
  int64_t window = 0;                // a token sees so many, itself too; 0: all
  double window_rope_theta = 0;      // of plain RoPE in layers with the window; 0: as in others
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

// GPTNeoXForCausalLM (Pythia): LayerNorm and biases, RoPE of the first channels of each head, a
// head of its own, attention and MLP beside one another.
struct GptNeoxConfig {
  int64_t layers = 0;
  int64_t hidden = 0;
  int64_t heads = 0;  // divides hidden
  int64_t mlp = 0;
  int64_t vocab = 0;
  int64_t max_positions = 2048;
  int64_t rotary_dim = 0;  // channels of a head that turn: even
  double rope_theta = 10000;
  double eps = 1e-5;
  bool parallel = true;  // both read the same x; else the MLP reads what attention added to
  bool attention_bias = true;
  bool exact_gelu = true;  // by erf; else in its tanh form
  bool tied = false;
  double initializer_range = 0.02;

  friend bool operator==(const GptNeoxConfig&, const GptNeoxConfig&) = default;
};

using ModelConfig = std::variant<LlamaConfig, Gpt2Config, GptNeoxConfig>;

}  // namespace CODA_API coda
