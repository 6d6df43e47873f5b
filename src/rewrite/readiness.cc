// SPDX-License-Identifier: Apache-2.0
#include "rewrite/readiness.h"

#include <algorithm>

namespace coda {

const std::set<int>& Readiness::products(int id) {
  auto [entry, is_new] = products_.try_emplace(id);
  if (!is_new) return entry->second;
  std::set<int> found;
  const Node& n = graph_.node(id);
  for (int operand : n.operands) {
    const std::set<int>& below = products(operand);
    found.insert(below.begin(), below.end());
  }
  if (n.op == Op::matmul || n.op == Op::opaque) found.insert(id);
  return products_[id] = std::move(found);
}

// Among the vectors that v is made of; what lies below a reduced tensor does not count.
bool Readiness::has_row_reduction(int id) {
  const Node& n = graph_.node(id);
  if (n.op == Op::row_sum || n.op == Op::row_logsumexp || n.op == Op::row_centred_squares ||
      n.op == Op::select_column) {
    return true;
  }
  return std::any_of(n.operands.begin(), n.operands.end(), [this](int operand) {
    return graph_.node(operand).shape.is_vector() && has_row_reduction(operand);
  });
}

bool Readiness::is_ready(int v, int x) {
  if (!has_row_reduction(v)) return true;
  const std::set<int> of_x = products(x);
  const std::set<int> of_v = products(v);
  return !std::includes(of_v.begin(), of_v.end(), of_x.begin(), of_x.end());
}

}  // namespace coda
