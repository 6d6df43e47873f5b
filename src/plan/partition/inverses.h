// SPDX-License-Identifier: Apache-2.0
// Values x and y of which the forward saves only one, because the backward can compute the other
// from it: y = x + vector, or y = x ⊙ positive vector. The backward never divides by a parameter (a
// norm's weight may be 0) and never inverts a rotation (its table may not be one).
//
// If the vector is much larger than x, the stored sum x + vector has lost x's digits. So a sum is
// such a pair only if the forward reads x nowhere else. Then x is usually the GEMM of a normalised
// input, and the backward needs x only for a sum over each row, in the norm's gradient.
#pragma once

#include <vector>

#include "coda/graph.h"
#include "ir/readers.h"

namespace coda {

// How a node y is computed from its operand x.
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
