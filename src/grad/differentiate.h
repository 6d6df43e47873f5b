// SPDX-License-Identifier: Apache-2.0
// Reverse mode over the primitives of a graph, one rule an operation. The derivative is built in
// the same graph, so that it shares the forward's nodes; it knows nothing of tiles, norms or
// models.
#pragma once

#include <vector>

#include "coda/graph.h"

namespace coda {

struct Seed {
  int output;       // a node
  Value cotangent;  // of its shape, or one that broadcasts to it
};

// The gradients of sum(seeds: <cotangent, output>) to the inputs `wanted`, in their order, each of
// the input's shape; a Value without a graph where the outputs do not depend on it. What leads to
// no wanted input is not built.
//
// For y = x ⊙ r with a vector r that is proven positive, dr = reduce(dy ⊙ y) / r rather than
// reduce(dy ⊙ x): it needs y, which whoever makes dy holds, and not the product behind it.
std::vector<Value> differentiate(Graph& graph, const std::vector<Seed>& seeds,
                                 const std::vector<int>& wanted);

}  // namespace coda
