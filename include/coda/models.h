// SPDX-License-Identifier: Apache-2.0
// A language model as plain mathematics: its graph from token ids to the loss, and what must be
// given to run it. The compiler sees only the graph; the parameters carry the names of Hugging
// Face's tensors.
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
  int64_t positions = 0;       // rows of RoPE tables: the longest sequence that will be run
  // RoPE of type longrope or dynamic depends on how long a sequence is: its tables are for
  // sequences of `length` tokens. 0: as many as there are positions.
  int64_t length = 0;
  // Rows that each expert computes, see expert_rows_of(); 0: each computes all.
  int64_t expert_rows = 0;
};

struct ModelParameter {
  std::string name;
  std::vector<int64_t> shape;  // as Hugging Face stores it; a vector is [1, N] in the graph
  Value value;
  bool decays = false;  // weight decay applies: matrices, not norms and biases
  double mean = 0;      // initial values are normal(mean, deviation)
  double deviation = 0;
  std::optional<int64_t> zero_row{};  // initially 0: the embedding of padding

  int64_t rows() const { return shape.size() == 1 ? 1 : shape[0]; }
  int64_t cols() const { return shape.back(); }
  int64_t count() const { return rows() * cols(); }
};

// Constant data that the model computes itself.
struct ModelTable {
  std::string name;
  int64_t rows = 0;
  int64_t cols = 0;
  std::vector<float> values;
  DType dtype = DType::f32;  // i32: whole numbers
};

// Symbols: M tokens (all sequences of a batch, one behind the other) and T tokens of one sequence.
struct ModelGraph {
  Graph graph;
  Value ids;        // "ids" i32 [M, 1]
  Value targets;    // "targets" i32 [M, 1]; kIgnoredTarget: the row does not count
  Value positions;  // "positions" i32 [M, 1]: the place of a token in its sequence
  std::vector<ModelTable> tables;
  std::vector<ModelParameter> parameters;
  Value logits;      // [M, V]
  Value row_losses;  // [M, 1], 0 where ignored
  Value loss;        // [1, 1], the mean over the rows that count
  // [1, 1], of sparse experts (ModelOptions::expert_rows), of all layers together: how often a
  // token chose an expert that had no row left for it, and went without. Else of no graph.
  Value dropped;
  int64_t vocabulary = 0;

  int64_t parameter_count() const;
};

inline constexpr int32_t kIgnoredTarget = -100;

// The one function that knows which models exist. Throws Error for a model with RoPE without
// positions.
std::unique_ptr<ModelGraph> build_model(const ModelConfig& config, const ModelOptions& options);

// What the rest of the program asks of any config.
int64_t parameter_count_of(const ModelConfig& config);
int64_t vocabulary_of(const ModelConfig& config);
// Floating-point operations of a token's forward and backward: 6 for each weight that it is
// multiplied by (not tables that are looked up only, nor experts that it has not), and of attention
// 6 for each layer, each column of the heads and each token of the sequence, half of which a token
// sees (Chowdhery et al. 2022, PaLM, appendix B, with causal attention counted as the half that it
// is).
double training_flops_of_token(const ModelConfig& config, int64_t sequence);
int64_t longest_sequence_of(const ModelConfig& config);
// The shortest sequence whose RoPE tables are those of a sequence of `length` tokens: with longrope
// all beyond the first context share theirs, with dynamic RoPE each length beyond max_positions has
// its own. ModelOptions::length takes it.
int64_t rope_length_of(const ModelConfig& config, int64_t length);
// How many experts a token chooses, in all layers together; 0 if the model has none.
int64_t expert_choices_of(const ModelConfig& config);
// The rows of each expert in a pass of so many tokens: `capacity` times the mean, which is tokens *
// chosen / experts, rounded up to 64 and at most all tokens. A capacity of experts / chosen has
// room whatever is chosen. 0 for a capacity of 0: experts are dense. Throws Error for a capacity
// that is below 0 or not finite, and for one of a model without experts.
int64_t expert_rows_of(const ModelConfig& config, double capacity, int64_t tokens);
// "LLaMA, 4 layers, hidden 128, ...".
std::string description_of(const ModelConfig& config);

// Initial values, a function of the seed, the parameter's name and the element's place only.
void initialize(const ModelParameter& parameter, uint64_t seed, std::span<float> values);

}  // namespace CODA_API coda
