// SPDX-License-Identifier: Apache-2.0
// Classes of values that can be made from one another by a proven inverse: y and y + vector, y and
// y ⊙ positive vector. Never a division by a parameter (a norm's weight may be 0), never a rotation
// (its table need not be one).
#pragma once

#include <vector>

#include "coda/graph.h"

namespace coda {

class InverseClasses {
 public:
  explicit InverseClasses(const Graph& graph);
  // Links `id` with its operand where that is proven; call in ascending order of ids, once for each
  // node.
  void add(int id, bool live);
  int of(int id) const;
  // The next node of the same class, ascending, or -1; the first is of(id).
  int next(int id) const { return next_[static_cast<size_t>(id)]; }

 private:
  const Graph& graph_;
  std::vector<int> parent_;
  std::vector<int> next_;
  std::vector<int> last_;  // of a class
};

// For y linked to its operand x: how x comes from y.
struct InverseLink {
  int operand = -1;  // x; -1: no link
  int vector = -1;
  bool additive = false;  // y = x + vector, else y = x ⊙ vector
};
InverseLink inverse_link(const Graph& graph, int id);

}  // namespace coda
