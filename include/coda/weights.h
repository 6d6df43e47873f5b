// SPDX-License-Identifier: Apache-2.0
// The parameters of a graph in host memory: fp32, with a rounded copy for parameters that plans
// read as bf16. Any number of plans (training, evaluation, sampling) can share one set of weights.
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
  std::vector<int64_t> shape;  // as in files: a [1, N] of the graph is a vector {N}
  int64_t rows = 0;
  int64_t cols = 0;
  bool decays = false;  // weight decay applies
  std::vector<float> values;
  std::vector<uint16_t> bf16;  // empty if the graph's parameter is fp32

  // The values as plans read them.
  TensorView view();
  void round();  // updates the bf16 copy: call it after setting values
  void widen();  // sets the values to those of the bf16 copy, if there is one
};

using Weights = std::vector<WeightTensor>;

// Initial values of all parameters of the graph, in the order of their declaration. Matrices are
// normal(0, deviation) and have weight decay; vectors are 0 and have none. A value depends only on
// the seed, the name and the index. Throws Error for a parameter with symbolic sizes, and for one
// that is neither f32 nor bf16.
Weights initial_weights(const Graph& graph, uint64_t seed, double deviation = 0.02);
// With the initial values that the model specifies.
Weights initial_weights(const ModelGraph& model, uint64_t seed);

// Throws Error if there is no weight of that name.
WeightTensor& find_weight(Weights& weights, std::string_view name);

// The weights by name, for Session::bind_known. On the host these are views of the weights, which
// must outlive them; for a backend with its own memory they are copies.
TensorMap tensors_of(Weights& weights, Backend& backend);

// The tables of a model, and the positions of the tokens in `sequences` sequences of `length`
// tokens, in host memory.
TensorMap constants_of(const ModelGraph& model, int64_t sequences, int64_t length);

// Writes one safetensors file of fp32 values atomically.
void save_weights(const std::filesystem::path& file, const Weights& weights);
// Sets all values from a safetensors file or a Hugging Face folder, of any floating type. Throws
// Error naming a weight that is missing or has another shape, and then changes nothing. Other
// tensors of the file are ignored. Names in the file may lack their first part ("transformer.",
// "model."), as in checkpoints of a model without its head.
void load_weights(const std::filesystem::path& file_or_folder, Weights& weights);

}  // namespace CODA_API coda
