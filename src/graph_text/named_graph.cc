// SPDX-License-Identifier: Apache-2.0
// Copies of named graphs.
#include "coda/graph_text.h"
#include "ir/rebuild.h"

namespace coda {

NamedGraph::NamedGraph(const NamedGraph& other)
    : name(other.name), graph(other.graph), outputs(other.outputs) {
  for (NamedValue& output : outputs) output.value = graph.value(output.value.id);
}

NamedGraph with_types(const NamedGraph& named, const ChangeType& type) {
  NamedGraph result;
  result.name = named.name;
  std::vector<Value> made;
  for (int id = 0; id < named.graph.size(); ++id) {
    Node node = named.graph.node(id);
    if (node.op == Op::input) node.dtype = type(node.name, node.shape, node.dtype);
    std::vector<Value> operands;
    for (const int operand : node.operands) operands.push_back(made[static_cast<size_t>(operand)]);
    made.push_back(rebuild(result.graph, node, operands));
  }
  for (NamedValue output : named.outputs) {
    output.value = made[static_cast<size_t>(output.value.id)];
    output.dtype = type(output.name, output.value.shape(), output.dtype.value_or(DType::f32));
    result.outputs.push_back(std::move(output));
  }
  return result;
}

}  // namespace coda
