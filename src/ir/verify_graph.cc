// SPDX-License-Identifier: Apache-2.0
#include "ir/verify_graph.h"

#include "coda/error.h"
#include "ir/rebuild.h"

namespace coda {

void verify(const Graph& graph, const std::vector<int>& roots) {
  const std::vector<bool> reached = reached_from(graph, roots);
  Graph again;
  std::vector<Value> made(static_cast<size_t>(graph.size()));
  for (int id = 0; id < graph.size(); ++id) {
    if (!reached[static_cast<size_t>(id)]) continue;
    const Node& node = graph.node(id);
    const auto name = [&] { return "node %" + std::to_string(id) + " " + node.shape.text(); };
    std::vector<Value> operands;
    for (int operand : node.operands) {
      if (operand < 0 || operand >= id) {
        throw InternalError(name() + " reads %" + std::to_string(operand) +
                            ", which is not before it");
      }
      operands.push_back(made[static_cast<size_t>(operand)]);
    }
    Value v;
    try {
      v = rebuild(again, node, operands);
    } catch (const Error& error) {
      throw InternalError(name() + ": " + error.what());
    }
    if (v.shape() != node.shape) {
      throw InternalError(name() + " should have the shape " + v.shape().text());
    }
    made[static_cast<size_t>(id)] = v;
  }
}

}  // namespace coda
