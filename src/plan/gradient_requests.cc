// SPDX-License-Identifier: Apache-2.0
// Builds the gradients in a copy of the graph to find out which inputs have one.
#include "plan/gradient_requests.h"

#include "grad/differentiate.h"

namespace coda {

std::string free_name(const Graph& graph, const IsUsed& is_used, const std::string& wanted) {
  std::string name = wanted;
  for (int number = 2; graph.find_input(name) >= 0 || is_used(name); ++number)
    name = wanted + "_" + std::to_string(number);
  return name;
}

std::optional<DType> gradient_type(const Shape& shape, DType dtype) {
  return shape.is_tensor() && size_of(dtype) == 2 ? std::optional(dtype) : std::nullopt;
}

void request_gradients(Graph& graph, const std::vector<std::string>& names, const IsUsed& is_used,
                       CompileRequest& request) {
  std::vector<int> inputs;
  for (int id = 0; id < graph.size(); ++id) {
    const Node& n = graph.node(id);
    if (n.op == Op::input && n.kind != InputKind::table) inputs.push_back(id);
  }
  for (size_t i = 0; i < names.size(); ++i) {
    const NamedValue& output = request.outputs[i];
    const Shape shape = output.value.shape();
    const DType type = gradient_type(shape, output.dtype.value_or(DType::f32)).value_or(DType::f32);
    request.seeds.push_back(
        {output.value, graph.input(free_name(graph, is_used, "grad_of_" + names[i]), shape, type)});
  }
  Graph copy = graph;  // the gradients that exist are known only after building them
  std::vector<Seed> seeds;
  for (const SeededOutput& seed : request.seeds)
    seeds.push_back({seed.output.id, copy.value(seed.cotangent.id)});
  const std::vector<Value> gradients = differentiate(copy, seeds, inputs);
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (gradients[i].graph == nullptr) continue;
    const Node& input = graph.node(inputs[i]);
    request.gradients.push_back({graph.value(inputs[i]),
                                 free_name(graph, is_used, "grad_to_" + input.name),
                                 gradient_type(input.shape, input.dtype).value_or(DType::f32)});
  }
  if (request.gradients.empty()) request.seeds.clear();
}

}  // namespace coda
