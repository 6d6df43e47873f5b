// SPDX-License-Identifier: Apache-2.0
// Initial values are drawn by a counter-based generator, so they do not depend on the order.
#include "coda/weights.h"

#include <algorithm>
#include <exception>

#include "base/memory_error.h"
#include "coda/backend.h"
#include "coda/error.h"
#include "coda/float16.h"
#include "coda/messages.h"
#include "train/stored_weights.h"

namespace coda {
namespace {

// A weight without values.
WeightTensor empty_weight(const std::string& name, std::vector<int64_t> shape, const Node& node) {
  require(node.dtype == DType::f32 || node.dtype == DType::bf16,
          "parameter '" + name + "' is " + std::string(name_of(node.dtype)) +
              ": weights are kept as f32 or bf16");
  require(node.shape.rows.is_constant() && node.shape.cols.is_constant(),
          "parameter '" + name + "' " + node.shape.text() + ": its sizes must be numbers");
  WeightTensor w;
  w.name = name;
  w.shape = std::move(shape);
  w.rows = node.shape.rows.constant();
  w.cols = node.shape.cols.constant();
  const std::string what = "the weight " + in_quotes(name);
  w.values = zeros_for<float>(what, static_cast<size_t>(w.rows * w.cols));
  if (node.dtype == DType::bf16) w.bf16 = zeros_for<uint16_t>(what, w.values.size());
  return w;
}

Weights empty_weights(const ModelGraph& model) {
  Weights weights(model.parameters.size());
  std::exception_ptr failure;
  // Parallel, because one thread writes new memory at only some GB/s.
#pragma omp parallel for schedule(dynamic)
  for (size_t i = 0; i < weights.size(); ++i) {
    const ModelParameter& p = model.parameters[i];
    try {
      weights[i] = empty_weight(p.name, p.shape, model.graph.node(p.value.id));
      weights[i].decays = p.decays;
    } catch (...) {
#pragma omp critical
      failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
  return weights;
}

const io::StoredTensor& find(const io::StoredTensors& stored, const std::string& name) {
  return stored.at(stored_name(stored, name));
}

}  // namespace

std::string stored_name(const io::StoredTensors& stored, const std::string& name) {
  const std::string of_base = name.substr(name.find('.') + 1);
  return stored.find(name) == nullptr && stored.find(of_base) != nullptr ? of_base : name;
}

TensorView WeightTensor::view() {
  return bf16.empty() ? dense_view(values.data(), DType::f32, rows, cols)
                      : dense_view(bf16.data(), DType::bf16, rows, cols);
}

void WeightTensor::round() {
#pragma omp parallel for schedule(static)
  for (size_t i = 0; i < bf16.size(); ++i) bf16[i] = bf16_from_float(values[i]);
}

void WeightTensor::widen() {
#pragma omp parallel for schedule(static)
  for (size_t i = 0; i < bf16.size(); ++i) values[i] = float_from_bf16(bf16[i]);
}

Weights initial_weights(const Graph& graph, uint64_t seed, double deviation) {
  Weights weights;
  for (int id = 0; id < graph.size(); ++id) {
    const Node& node = graph.node(id);
    if (node.op != Op::input || node.kind != InputKind::parameter) continue;
    const bool is_vector = node.shape.is_vector();
    std::vector<int64_t> shape{node.shape.rows.constant(), node.shape.cols.constant()};
    if (node.shape.rows.is(1)) shape.erase(shape.begin());
    WeightTensor w = empty_weight(node.name, shape, node);
    w.decays = !is_vector;
    ModelParameter parameter{.name = node.name, .shape = shape, .value = {}};
    parameter.deviation = is_vector ? 0 : deviation;
    initialize(parameter, seed, w.values);
    w.round();
    weights.push_back(std::move(w));
  }
  return weights;
}

Weights initial_weights(const ModelGraph& model, uint64_t seed) {
  Weights weights = empty_weights(model);
  for (size_t i = 0; i < weights.size(); ++i) {
    initialize(model.parameters[i], seed, weights[i].values);
    weights[i].round();
  }
  return weights;
}

WeightTensor& find_weight(Weights& weights, std::string_view name) {
  const auto found = std::find_if(weights.begin(), weights.end(),
                                  [&](const WeightTensor& w) { return w.name == name; });
  require(found != weights.end(), "there is no weight named '" + std::string(name) + "'");
  return *found;
}

TensorMap tensors_of(Weights& weights, Backend& backend) {
  TensorMap tensors;
  for (WeightTensor& w : weights) {
    Tensor tensor(w.view());
    if (!backend.is_on_host()) {
      tensor = Tensor(w.view().dtype, w.rows, w.cols, backend);
      tensor.copy_from(w.view());
    }
    tensors.emplace(w.name, tensor);
  }
  return tensors;
}

TensorMap constants_of(const ModelGraph& model, int64_t sequences, int64_t length) {
  std::vector<int32_t> places;
  for (int64_t i = 0; i < sequences * length; ++i)
    places.push_back(static_cast<int32_t>(i % length));
  TensorMap constants = {{"positions", Tensor(DType::i32, std::ssize(places), 1)}};
  constants.at("positions").set(places);
  for (const ModelTable& table : model.tables) {
    Tensor tensor(table.dtype, table.rows, table.cols);
    tensor.set(table.values);
    constants.emplace(table.name, tensor);
  }
  return constants;
}

void save_weights(const std::filesystem::path& file, const Weights& weights) {
  io::write_safetensors(file, stored_form(weights));
}

void load_weights(const std::filesystem::path& file_or_folder, Weights& weights) {
  load_weights(std::filesystem::is_directory(file_or_folder)
                   ? io::open_model_weights(file_or_folder)
                   : io::open_safetensors(file_or_folder),
               weights);
}

void load_weights(const io::StoredTensors& stored, Weights& weights) {
  std::vector<std::vector<float>> loaded;
  for (const WeightTensor& w : weights) {
    io::read_floats(find(stored, w.name), w.shape, loaded.emplace_back(w.values.size()));
  }
  for (size_t i = 0; i < weights.size(); ++i) {
    weights[i].values = std::move(loaded[i]);
    weights[i].round();
  }
}

void require_stored(const ModelGraph& model, const io::StoredTensors& stored) {
  for (const ModelParameter& p : model.parameters) {
    io::require_shape(find(stored, p.name), p.shape);
  }
}

void require_stored(const ModelConfig& config, const io::StoredTensors& stored) {
  const int64_t layers = std::visit([](const auto& c) { return c.layers; }, config);
  require(layers <= std::ssize(stored.tensors),
          stored.source + ": " + std::to_string(stored.tensors.size()) +
              " tensors, but config.json asks for " + std::to_string(layers) +
              " layers (config.json and the weights do not belong together)");
  require_stored(*build_model(config, {.storage = DType::f32, .positions = 1}), stored);
}

Weights load_weights(const ModelGraph& model, const io::StoredTensors& stored) {
  require_stored(model, stored);
  Weights weights = empty_weights(model);
  load_weights(stored, weights);
  return weights;
}

std::vector<io::TensorToWrite> stored_form(const Weights& weights) {
  std::vector<io::TensorToWrite> tensors;
  for (const WeightTensor& w : weights) {
    tensors.push_back({w.name, io::ElementType::f32, w.shape, std::as_bytes(std::span(w.values))});
  }
  return tensors;
}

}  // namespace coda
