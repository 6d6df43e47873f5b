// SPDX-License-Identifier: Apache-2.0
// Saves memory: of two values x and y the forward saves only one, and the backward computes the
// other from it. Two forms of y allow this: y = x + vector, and y = x ⊙ positive vector. Two other
// inverses are not safe. A division by a parameter fails where the parameter is 0, as a norm's
// weight may be. The inverse of a rotation is wrong if the caller's table is not a rotation.
//
// If the vector is much larger than x, the stored sum x + vector has lost x's digits. So a sum is
// used only if no other forward node reads x. Then x is usually the GEMM of a normalised input, and
// the backward needs x only for the row sums in the norm's gradient.
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
// The links of all nodes, indexed by node id. `live[id]`: a result depends on the node.
// `forward[id]`: the node belongs to the forward. `readers`: for each node, the live nodes that
// have it as an operand.
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
