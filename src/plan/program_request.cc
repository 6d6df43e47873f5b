// SPDX-License-Identifier: Apache-2.0
#include "coda/lift.h"

#include "grad/differentiate.h"

namespace coda {
namespace {

// "NAME", or with a number if the graph has such an input, or the programs such a tensor.
std::string free_name(const Graph& graph, const LiftedTensors& tensors, const std::string& wanted) {
  std::string name = wanted;
  for (int number = 2; graph.find_input(name) >= 0 || tensors.values.contains(name); ++number)
    name = wanted + "_" + std::to_string(number);
  return name;
}

// The type of a matrix of 16 bits.
std::optional<DType> kept_type(const Shape& shape, DType dtype) {
  return shape.is_tensor() && size_of(dtype) == 2 ? std::optional(dtype) : std::nullopt;
}

}  // namespace

CompileRequest program_request(Graph& graph, const LiftedTensors& tensors, bool with_gradients) {
  CompileRequest request;
  std::vector<int> inputs;
  for (int id = 0; id < graph.size(); ++id) {
    const Node& n = graph.node(id);
    if (n.op == Op::input && n.kind != InputKind::table) inputs.push_back(id);
  }
  for (const auto& [name, value] : tensors.values) {
    if (graph.node(value.id).name == name) continue;  // read only
    const bool in_place = graph.find_input(name) >= 0;
    const auto declared = tensors.types.find(name);  // not of a partial's whole reduction
    const std::optional<DType> type =
        declared == tensors.types.end() ? std::nullopt : kept_type(value.shape(), declared->second);
    request.outputs.push_back(
        {in_place ? free_name(graph, tensors, name + ".stored") : name, value, type});
    if (!with_gradients) continue;
    const std::string cotangent = free_name(graph, tensors, "grad_of_" + name);
    request.seeds.push_back(
        {value, graph.input(cotangent, value.shape(), type.value_or(DType::f32))});
  }
  if (!with_gradients) return request;
  Graph copy = graph;  // which gradients there are is known once they are built
  std::vector<Seed> seeds;
  for (const SeededOutput& seed : request.seeds)
    seeds.push_back({seed.output.id, copy.value(seed.cotangent.id)});
  const std::vector<Value> gradients = differentiate(copy, seeds, inputs);
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (gradients[i].graph == nullptr) continue;
    const Node& input = graph.node(inputs[i]);
    request.gradients.push_back({graph.value(inputs[i]),
                                 free_name(graph, tensors, "grad_to_" + input.name),
                                 kept_type(input.shape, input.dtype).value_or(DType::f32)});
  }
  if (request.gradients.empty()) request.seeds.clear();
  return request;
}

}  // namespace coda
