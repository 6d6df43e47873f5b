// SPDX-License-Identifier: Apache-2.0
// Recognises the two patterns with a safe inverse: sums with a vector, and products with a positive
// vector.
#include "plan/partition/inverses.h"

#include <algorithm>
#include <numeric>
#include <span>

namespace coda {

namespace {

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

}  // namespace

std::vector<InverseLink> inverse_links(const Graph& graph, const std::vector<bool>& live,
                                       const std::vector<bool>& forward, const Readers& readers) {
  std::vector<InverseLink> links(static_cast<size_t>(graph.size()));
  for (int id = 0; id < graph.size(); ++id) {
    if (!live[static_cast<size_t>(id)]) continue;
    const InverseLink link = inverse_link(graph, id);
    const auto is_of_forward = [&](int reader) { return forward[static_cast<size_t>(reader)]; };
    if (link.additive) {
      const std::span<const int> all = readers.of(link.operand);
      if (std::count_if(all.begin(), all.end(), is_of_forward) > 1) continue;
    }
    links[static_cast<size_t>(id)] = link;
  }
  return links;
}

InverseClasses::InverseClasses(const std::vector<InverseLink>& links)
    : parent_(links.size()), next_(links.size(), -1) {
  std::iota(parent_.begin(), parent_.end(), 0);
  std::vector<int> last = parent_;  // of each class
  for (size_t id = 0; id < links.size(); ++id) {
    if (links[id].operand < 0) continue;
    const auto first = static_cast<size_t>(of(links[id].operand));
    parent_[id] = static_cast<int>(first);
    next_[static_cast<size_t>(last[first])] = static_cast<int>(id);
    last[first] = static_cast<int>(id);
  }
}

int InverseClasses::of(int id) const {
  while (parent_[static_cast<size_t>(id)] != id) id = parent_[static_cast<size_t>(id)];
  return id;
}

}  // namespace coda
