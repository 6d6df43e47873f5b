// SPDX-License-Identifier: Apache-2.0
#include "plan/inverses.h"

#include <numeric>

namespace coda {

InverseLink inverse_link(const Graph& graph, int id) {
  const Node& n = graph.node(id);
  const bool candidate = n.op == Op::elementwise && n.shape.is_tensor() &&
                         (n.fn == Elementwise::add || n.fn == Elementwise::mul);
  if (!candidate) return {};
  for (size_t i : {0U, 1U}) {
    const int tensor = n.operands[i];
    const int vector = n.operands[1 - i];
    if (graph.node(tensor).shape != n.shape || !graph.node(vector).shape.is_vector()) continue;
    if (n.fn == Elementwise::add) return {tensor, vector, true};
    if (is_positive(graph, vector)) return {tensor, vector, false};
  }
  return {};
}

InverseClasses::InverseClasses(const Graph& graph) : graph_(graph) {
  parent_.resize(static_cast<size_t>(graph.size()));
  std::iota(parent_.begin(), parent_.end(), 0);
  members_.resize(parent_.size());
}

int InverseClasses::of(int id) const {
  while (parent_[static_cast<size_t>(id)] != id) id = parent_[static_cast<size_t>(id)];
  return id;
}

void InverseClasses::add(int id, bool live) {
  if (!live) return;
  const InverseLink link = inverse_link(graph_, id);
  if (link.operand >= 0) parent_[static_cast<size_t>(id)] = of(link.operand);
  members_[static_cast<size_t>(of(id))].push_back(id);
}

}  // namespace coda
