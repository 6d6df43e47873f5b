// SPDX-License-Identifier: Apache-2.0
// The sizes and settings of the models that have a graph builder: plain values, as a config.json or
// a command line gives them. checkpoints keep them as config.json.
#pragma once

#include <cstdint>
#include <optional>
#include <variant>

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

// LlamaForCausalLM: RMSNorm, half-split RoPE, grouped key-value heads, SwiGLU, no biases.
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
  std::optional<Llama3RopeScaling> rope_scaling;
  bool tied = false;  // the head's weight is the embedding's
  int64_t max_positions = 2048;

  friend bool operator==(const LlamaConfig&, const LlamaConfig&) = default;
};

// GPT2LMHeadModel: LayerNorm and biases, learned positions, GELU in its tanh form, tied head.
struct Gpt2Config {
  int64_t layers = 0;
  int64_t hidden = 0;
  int64_t heads = 0;  // divides hidden
  int64_t vocab = 0;
  int64_t positions = 1024;
  int64_t mlp = 0;
  double eps = 1e-5;

  friend bool operator==(const Gpt2Config&, const Gpt2Config&) = default;
};

using ModelConfig = std::variant<LlamaConfig, Gpt2Config>;

}  // namespace CODA_API coda
