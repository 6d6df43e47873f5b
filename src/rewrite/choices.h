// SPDX-License-Identifier: Apache-2.0
// The choices that rewriting leaves to the cost model, as plain data. A candidate is found where it
// first appears, in the order of the forward graph, so that the same index means the same thing in
// every attempt.
#pragma once

#include <vector>

#include "coda/graph.h"

namespace coda {

enum class ColumnFactor : uint8_t {
  producer,         // X ⊙ w is made by whoever makes X ("h")
  weight,           // w goes into the product's other operand, W ⊙ w ("fold")
  normalise_first,  // the sunk factors are applied before w: the product waits for them
};

struct Choices {
  std::vector<ColumnFactor>
      column_factors;  // one a per-column factor along K on a product's left operand
  std::vector<bool>
      pinned;  // one a per-row factor behind a product: true puts it on the gradient (dz')
  // true: a norm that subtracts a mean and has no weight is applied before the GEMM that reads the
  // norm. column_factors cannot express this, because it has entries only for norms with a weight.
  bool means_first = false;

  ColumnFactor column_factor(size_t i) const {
    return i < column_factors.size() ? column_factors[i] : ColumnFactor::producer;
  }
  bool is_pinned(size_t i) const { return i < pinned.size() && pinned[i]; }
};

// What was found while the forward was rewritten: nodes of the rewritten graph.
struct Candidates {
  std::vector<int> column_factors;
  std::vector<int> row_factors;
  // Those of column_factors whose norm subtracts a mean: `producer` is refused for them, as the
  // product of X ⊙ w and the mean's term cancel (docs/numerics.md).
  std::vector<int> row_affine;
};

}  // namespace coda
