// SPDX-License-Identifier: Apache-2.0
// The weights of a model in memory: fp32, and for a model that computes with bf16 matrices their
// rounded copies beside them. One set of weights serves any number of plans (training, evaluation,
// sampling).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "coda/tensor.h"
#include "io/safetensors.h"
#include "models/model_graph.h"

namespace coda::train {

struct WeightTensor {
  std::string name;
  std::vector<int64_t> shape;  // as Hugging Face stores it
  int64_t rows = 0;
  int64_t cols = 0;
  bool decays = false;
  std::vector<float> values;
  std::vector<uint16_t> bf16;  // empty where the model computes with fp32

  // What the model computes with.
  TensorView view();
  void round();  // makes the bf16 copy anew
};

using Weights = std::vector<WeightTensor>;

Weights initial_weights(const ModelGraph& model, uint64_t seed);

// Throws Error if a weight is missing or has another shape. Weights that the model does not have
// are passed over, and a name may lack its first part ("transformer.", "model."), as in checkpoints
// of the model without its head.
Weights load_weights(const ModelGraph& model, const io::StoredTensors& stored);

// The weights as a checkpoint stores them, in fp32.
std::vector<io::TensorToWrite> stored_form(const Weights& weights);

}  // namespace coda::train
