// SPDX-License-Identifier: Apache-2.0
// Converts a parsed graph into compile requests; the naming of gradients is in gradient_requests.h.
#include "coda/graph_request.h"

#include <algorithm>

#include "base/nearest_name.h"
#include "coda/error.h"
#include "grad/differentiate.h"
#include "plan/gradient_requests.h"

namespace coda {

CompileRequest graph_request(NamedGraph& named, bool with_gradients) {
  CompileRequest request;
  std::vector<std::string> names;
  for (const NamedValue& output : named.outputs) {
    require(named.graph.find_input(output.name) < 0,
            "graph '" + named.name + "' stores '" + output.name +
                "', which is the name of an input: give the output another name");
    NamedValue& stored = request.outputs.emplace_back(output);
    if (output.value.shape().is_tensor()) stored.dtype = output.dtype.value_or(DType::f32);
    names.push_back(output.name);
  }
  if (with_gradients) {
    request_gradients(
        named.graph, names,
        [&](const std::string& name) {
          return std::find(names.begin(), names.end(), name) != names.end();
        },
        request);
  }
  return request;
}

DType usual_storage(const NamedGraph& named) {
  for (int id = 0; id < named.graph.size(); ++id) {
    const Node& n = named.graph.node(id);
    if (n.op != Op::matmul) continue;
    for (const int operand : n.operands) {
      const Node& read = named.graph.node(operand);
      if (read.op == Op::input && size_of(read.dtype) == 2) return read.dtype;
    }
  }
  return DType::f32;
}

NamedGraph gradient_graph(const NamedGraph& named, const std::vector<std::string>& wanted) {
  NamedGraph result = named;
  result.name = named.name + "_backward";
  const CompileRequest request = graph_request(result, true);
  require(!request.gradients.empty(), "graph '" + named.name +
                                          "': nothing can be derived: no output depends on an "
                                          "input with a gradient");
  std::vector<std::string> known;
  std::vector<int> inputs;
  std::vector<const GradientRequest*> kept;
  for (const GradientRequest& gradient : request.gradients) {
    const std::string& input = result.graph.node(gradient.input.id).name;
    known.push_back(input);
    if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), input) == wanted.end()) continue;
    kept.push_back(&gradient);
    inputs.push_back(gradient.input.id);
  }
  for (const std::string& name : wanted) {
    require(std::find(known.begin(), known.end(), name) != known.end(),
            "no gradient flows to '" + name + "'" + nearest_name(name, known));
  }
  std::vector<Seed> seeds;
  for (const SeededOutput& seed : request.seeds) seeds.push_back({seed.output.id, seed.cotangent});
  const std::vector<Value> gradients = differentiate(result.graph, seeds, inputs);
  result.outputs.clear();
  for (size_t i = 0; i < kept.size(); ++i) {
    const bool is_kept = size_of(kept[i]->dtype) == 2;
    result.outputs.push_back(
        {kept[i]->name, gradients[i], is_kept ? std::optional(kept[i]->dtype) : std::nullopt});
  }
  return result;
}

}  // namespace coda
