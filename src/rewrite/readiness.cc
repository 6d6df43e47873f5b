// SPDX-License-Identifier: Apache-2.0
#include "rewrite/readiness.h"

#include <algorithm>

namespace coda {

const Readiness::Products& Readiness::products(int id) {
  auto known = products_.find(id);
  if (known != products_.end()) return known->second;
  Products found;
  const Node& n = graph_.node(id);
  for (int operand : n.operands) {
    const Products& below = products(operand);
    found.resize(std::max(found.size(), below.size()), 0);
    for (size_t i = 0; i < below.size(); ++i) found[i] |= below[i];
  }
  if (n.op == Op::matmul || n.op == Op::opaque) {
    found.resize(std::max(found.size(), met_ / 64 + 1), 0);
    found[met_ / 64] |= uint64_t{1} << (met_ % 64);
    ++met_;
  }
  return products_[id] = std::move(found);
}

// Among the vectors that v is made of; what lies below a reduced tensor does not count.
bool Readiness::has_row_reduction(int id) {
  auto known = has_row_reduction_.find(id);
  if (known != has_row_reduction_.end()) return known->second;
  const Node& n = graph_.node(id);
  const bool reduces = n.op == Op::row_sum || n.op == Op::row_reduce || n.op == Op::select_column;
  return has_row_reduction_[id] =
             reduces || std::any_of(n.operands.begin(), n.operands.end(), [this](int operand) {
               return graph_.node(operand).shape.is_vector() && has_row_reduction(operand);
             });
}

bool Readiness::is_ready(int v, int x) {
  if (!has_row_reduction(v)) return true;
  const Products& of_x = products(x);
  const Products& of_v = products(v);
  for (size_t i = 0; i < of_x.size(); ++i) {
    if ((of_x[i] & ~(i < of_v.size() ? of_v[i] : 0)) != 0) return true;
  }
  return false;
}

}  // namespace coda
