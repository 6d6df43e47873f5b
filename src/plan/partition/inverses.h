// SPDX-License-Identifier: Apache-2.0
// Finds pairs of values x and y with y = x + vector or y = x ⊙ positive vector. If the backward
// needs both values, the forward saves only one of them, and the backward computes the other one
// from it. This saves memory. The backward never divides by a parameter, because a parameter may be
// 0. The backward never inverts a rotation (RoPE), because the caller's table may not be a
// rotation.
//
// If the vector is much larger than x, computing x as y - vector loses digits. So the backward does
// this only if y is the only forward node that reads x. Such an x is usually the result of a GEMM
// with a normalised input, and the backward needs x only for the row sums in the norm's gradient.
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
// Returns the link of each node, indexed by node id. live[id] is true if a result of the graph
// depends on node id. forward[id] is true if node id is computed in the forward. `readers` lists,
// for each node, the live nodes that have the node as an operand.
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
