// SPDX-License-Identifier: Apache-2.0
// Builds a language model as a graph, from token ids to the loss, together with its parameters and
// tables. The compiler has no model-specific code. The parameters have Hugging Face's names.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "coda/api.h"
#include "coda/graph.h"
#include "coda/model_config.h"

namespace CODA_API coda {

struct ModelOptions {
  DType storage = DType::f32;  // of weight matrices; vectors (norms, biases) stay fp32
  int64_t positions = 0;       // rows of RoPE tables: the longest sequence that will run
  // The tables of longrope and dynamic RoPE depend on the sequence length: they are built for
  // sequences of `length` tokens. 0: `positions`.
  int64_t length = 0;
  // Rows per expert, see expert_rows_of(); 0: each expert computes all rows.
  int64_t expert_rows = 0;
};

struct ModelParameter {
  std::string name;
  std::vector<int64_t> shape;  // as Hugging Face stores it; a vector is [1, N] in the graph
  Value value;
  bool decays = false;  // weight decay applies: matrices, not norms and biases
  double mean = 0;      // initial values are normal(mean, deviation)
  double deviation = 0;
  std::optional<int64_t> zero_row{};  // initially 0: the embedding of the padding token

  int64_t rows() const { return shape.size() == 1 ? 1 : shape[0]; }
  int64_t cols() const { return shape.back(); }
  int64_t count() const { return rows() * cols(); }
};

// Constant data that the library computes.
struct ModelTable {
  std::string name;
  int64_t rows = 0;
  int64_t cols = 0;
  std::vector<float> values;
  DType dtype = DType::f32;  // i32: whole numbers
};

// Symbols: M is the number of tokens (all sequences of a batch, one after another), T the tokens of
// one sequence.
struct ModelGraph {
  Graph graph;
  Value ids;        // "ids" i32 [M, 1]
  Value targets;    // "targets" i32 [M, 1]; rows with kIgnoredTarget do not count
  Value positions;  // "positions" i32 [M, 1]: the index of a token in its sequence
  std::vector<ModelTable> tables;
  std::vector<ModelParameter> parameters;
  Value logits;      // [M, V]
  Value row_losses;  // [M, 1], 0 where ignored
  Value loss;        // [1, 1], the mean over the rows that count
  // [1, 1]: how often a token chose an expert that was full, so that the token went without it;
  // summed over all layers. Only for sparse experts (ModelOptions::expert_rows); otherwise without
  // a graph.
  Value dropped;
  int64_t vocabulary = 0;

  int64_t parameter_count() const;
};

inline constexpr int32_t kIgnoredTarget = -100;

// The only function that knows which models exist. Throws Error for a model with RoPE if
// `positions` is 0.
std::unique_ptr<ModelGraph> build_model(const ModelConfig& config, const ModelOptions& options);

// Properties of any model.
int64_t parameter_count_of(const ModelConfig& config);
int64_t vocabulary_of(const ModelConfig& config);
// Floating-point operations per token for forward and backward: 6 for each weight that multiplies
// the token (not counting lookup tables and experts that the token does not use), plus, for
// attention, 6 for each layer, column of the heads and token of the sequence. Attention counts only
// the half that a causal mask leaves; appendix B of PaLM (Chowdhery et al. 2022) counts all of it.
double training_flops_of_token(const ModelConfig& config, int64_t sequence);
int64_t longest_sequence_of(const ModelConfig& config);
// The shortest sequence that has the same RoPE tables as one of `length` tokens; a value for
// ModelOptions::length. With longrope all lengths beyond the original context share their tables;
// with dynamic RoPE each length beyond max_positions has its own.
int64_t rope_length_of(const ModelConfig& config, int64_t length);
// Experts that a token chooses, summed over all layers; 0 if the model has none.
int64_t expert_choices_of(const ModelConfig& config);
// Rows of each expert in a microbatch of `tokens` tokens: `capacity` times the mean (tokens *
// chosen / experts), rounded up to a multiple of 64 and at most `tokens`. A capacity of experts /
// chosen is enough for any choice. Returns 0 (dense experts) for a capacity of 0. Throws Error for
// a capacity that is negative or not finite, and for a capacity of a model without experts.
int64_t expert_rows_of(const ModelConfig& config, double capacity, int64_t tokens);
// "LLaMA, 4 layers, hidden 128, ...".
std::string description_of(const ModelConfig& config);

// Initial values. They depend only on the seed, the parameter's name and the element's index.
void initialize(const ModelParameter& parameter, uint64_t seed, std::span<float> values);

}  // namespace CODA_API coda
