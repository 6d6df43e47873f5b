// SPDX-License-Identifier: Apache-2.0
// Classes of values that can be computed from each other by a proven inverse: y and y + vector, y
// and y ⊙ positive vector. Never by dividing by a parameter (a norm's weight may be 0) or by
// inverting a rotation (its table may not be one). If the vector is much larger than y, nothing is
// left of y in a stored sum. So y must have no other reader in the forward: then it is the product
// behind a norm, and the backward needs it only for the norm's sum over a row.
#pragma once

#include <vector>

#include "coda/graph.h"
#include "ir/readers.h"

namespace coda {

// How y is computed from its linked operand x.
struct InverseLink {
  int operand = -1;  // x; -1: no link
  int vector = -1;
  bool additive = false;  // y = x + vector, else y = x ⊙ vector
};
// By id. `live` and `forward`: of each node; `readers` are those that are live.
std::vector<InverseLink> inverse_links(const Graph& graph, const std::vector<bool>& live,
                                       const std::vector<bool>& forward, const Readers& readers);

class InverseClasses {
 public:
  explicit InverseClasses(const std::vector<InverseLink>& links);
  int of(int id) const;
  // The next node of the same class in ascending order, or -1; the first one is of(id).
  int next(int id) const { return next_[static_cast<size_t>(id)]; }

 private:
  std::vector<int> parent_;
  std::vector<int> next_;
};

}  // namespace coda
