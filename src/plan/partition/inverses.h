// SPDX-License-Identifier: Apache-2.0
// Classes of values that can be computed from each other by a proven inverse: y and y ⊙ positive
// vector. Never by dividing by a parameter (a norm's weight may be 0), by inverting a rotation (its
// table may not be one), or by subtracting a vector: if it is much larger than y, nothing is left
// of y.
#pragma once

#include <vector>

#include "coda/graph.h"

namespace coda {

class InverseClasses {
 public:
  explicit InverseClasses(const Graph& graph);
  // Links `id` with its operand if there is a proven inverse. Call once for each node, in ascending
  // order of ids.
  void add(int id, bool live);
  int of(int id) const;
  // The next node of the same class in ascending order, or -1; the first one is of(id).
  int next(int id) const { return next_[static_cast<size_t>(id)]; }

 private:
  const Graph& graph_;
  std::vector<int> parent_;
  std::vector<int> next_;
  std::vector<int> last_;  // of each class
};

// How y = x ⊙ vector is computed from its linked operand x.
struct InverseLink {
  int operand = -1;  // x; -1: no link
  int vector = -1;
};
InverseLink inverse_link(const Graph& graph, int id);

}  // namespace coda
