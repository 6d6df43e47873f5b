// SPDX-License-Identifier: Apache-2.0
// The parameters of a graph in memory: fp32, and for those that a plan reads as bf16 their rounded
// copies beside them. One set of weights serves any number of plans (training, evaluation,
// sampling).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "coda/api.h"
#include "coda/graph.h"
#include "coda/models.h"
#include "coda/tensor.h"

namespace CODA_API coda {

struct WeightTensor {
  std::string name;
  std::vector<int64_t> shape;  // as files store it: [1, N] of a graph is a vector, {N}
  int64_t rows = 0;
  int64_t cols = 0;
  bool decays = false;  // weight decay applies
  std::vector<float> values;
  std::vector<uint16_t> bf16;  // empty where the graph's parameter is fp32

  // What plans read.
  TensorView view();
  void round();  // makes the bf16 copy anew: to be called when values were set
};

using Weights = std::vector<WeightTensor>;

// Of all parameters of the graph, in the order of their declaration: matrices are normal(0,
// deviation) and decay, vectors are 0 and do not. Values are a function of the seed, the name and
// the place only. Throws Error for a parameter whose sizes are no numbers, or that is neither f32
// nor bf16.
Weights initial_weights(const Graph& graph, uint64_t seed, double deviation = 0.02);
// As the model asks for.
Weights initial_weights(const ModelGraph& model, uint64_t seed);

// Throws Error if there is none of that name.
WeightTensor& find_weight(Weights& weights, std::string_view name);

// By name, as a Session binds them (Session::bind_known). On the host it is the weights' own
// memory, which must outlive them; a backend with other memory gets copies of what the weights are
// now.
TensorMap tensors_of(Weights& weights, Backend& backend);

// What a model reads besides ids, targets and weights: its tables, and the positions of tokens in
// `sequences` sequences of `length` tokens. In the host's memory.
TensorMap constants_of(const ModelGraph& model, int64_t sequences, int64_t length);

// One safetensors file of fp32 values, written as a whole or not at all.
void save_weights(const std::filesystem::path& file, const Weights& weights);
// Sets all values from a safetensors file, or from a Hugging Face folder, of any floating type.
// Throws Error naming a weight that is missing or has another shape, and leaves all as they were.
// Others in the file are passed over, and a name may lack its first part ("transformer.",
// "model."), as in checkpoints of a model without its head.
void load_weights(const std::filesystem::path& file_or_folder, Weights& weights);

}  // namespace CODA_API coda
