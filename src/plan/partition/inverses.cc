// SPDX-License-Identifier: Apache-2.0
// Recognises the pattern with a safe inverse: products with a positive vector.
#include "plan/partition/inverses.h"

#include <numeric>

namespace coda {

InverseLink inverse_link(const Graph& graph, int id) {
  const Node& n = graph.node(id);
  const bool is_product =
      n.op == Op::elementwise && n.shape.is_tensor() && n.fn == Elementwise::mul;
  if (!is_product) return {};
  for (size_t i : {0U, 1U}) {
    const int tensor = n.operands[i];
    const int vector = n.operands[1 - i];
    if (graph.node(tensor).shape != n.shape || !graph.node(vector).shape.is_vector()) continue;
    if (is_positive(graph, vector)) return {tensor, vector};
  }
  return {};
}

InverseClasses::InverseClasses(const Graph& graph) : graph_(graph) {
  parent_.resize(static_cast<size_t>(graph.size()));
  std::iota(parent_.begin(), parent_.end(), 0);
  next_.assign(parent_.size(), -1);
  last_ = parent_;
}

int InverseClasses::of(int id) const {
  while (parent_[static_cast<size_t>(id)] != id) id = parent_[static_cast<size_t>(id)];
  return id;
}

void InverseClasses::add(int id, bool live) {
  if (!live) return;
  const InverseLink link = inverse_link(graph_, id);
  if (link.operand < 0) return;
  const int first = of(link.operand);
  parent_[static_cast<size_t>(id)] = first;
  int& last = last_[static_cast<size_t>(first)];
  next_[static_cast<size_t>(last)] = id;
  last = id;
}

}  // namespace coda
