// SPDX-License-Identifier: Apache-2.0
#include "train/weights.h"

#include "coda/float16.h"

namespace coda::train {
namespace {

// As the graph's parameters, with values not yet set.
Weights empty_weights(const ModelGraph& model) {
  Weights weights;
  for (const ModelParameter& p : model.parameters) {
    WeightTensor w{p.name, p.shape, p.rows(), p.cols(), p.decays, {}, {}};
    w.values.resize(static_cast<size_t>(p.count()));
    if (model.graph.node(p.value.id).dtype == DType::bf16) w.bf16.resize(w.values.size());
    weights.push_back(std::move(w));
  }
  return weights;
}

const io::StoredTensor& find(const io::StoredTensors& stored, const std::string& name) {
  if (const io::StoredTensor* tensor = stored.find(name)) return *tensor;
  if (const io::StoredTensor* tensor = stored.find(name.substr(name.find('.') + 1))) return *tensor;
  return stored.at(name);  // says what is missing
}

}  // namespace

TensorView WeightTensor::view() {
  return bf16.empty() ? dense_view(values.data(), DType::f32, rows, cols)
                      : dense_view(bf16.data(), DType::bf16, rows, cols);
}

void WeightTensor::round() {
  for (size_t i = 0; i < bf16.size(); ++i) bf16[i] = bf16_from_float(values[i]);
}

Weights initial_weights(const ModelGraph& model, uint64_t seed) {
  Weights weights = empty_weights(model);
  for (size_t i = 0; i < weights.size(); ++i) {
    initialize(model.parameters[i], seed, weights[i].values);
    weights[i].round();
  }
  return weights;
}

Weights load_weights(const ModelGraph& model, const io::StoredTensors& stored) {
  Weights weights = empty_weights(model);
  for (WeightTensor& w : weights) {
    io::read_floats(find(stored, w.name), w.shape, w.values);
    w.round();
  }
  return weights;
}

std::vector<io::TensorToWrite> stored_form(const Weights& weights) {
  std::vector<io::TensorToWrite> tensors;
  for (const WeightTensor& w : weights) {
    tensors.push_back({w.name, io::ElementType::f32, w.shape, std::as_bytes(std::span(w.values))});
  }
  return tensors;
}

}  // namespace coda::train
