// SPDX-License-Identifier: Apache-2.0
// Internal options of the search, for tests: forced choices, and models whose row statistics
// another part computes.
#pragma once

#include <vector>

#include "coda/compile.h"

namespace coda {

struct Forced {
  // In the order of the candidates: true folds a column factor into the weight, or pins a row
  // factor to the gradient. Both empty: searched.
  std::vector<bool> fold = {};
  std::vector<bool> pin = {};
  // Per-row vectors that another plan computed (the reciprocal of a norm in the previous layer):
  // they are read from the tensor of that name. Gradients are those of the original graph.
  std::vector<NamedValue> given = {};
};

// Statistics of the search. For a model with many layers `plans` is 1, and the other numbers do not
// depend on the number of layers.
struct SearchWork {
  int plans = 0;         // of the whole graph
  int plans_of_few = 0;  // of the small model, on which choices were found
  int nodes_of_few = 0;  // of the small model
};

Compiled compile(const Graph& graph, const CompileRequest& request, const CompileOptions& options,
                 const Forced& forced, SearchWork* work = nullptr);

}  // namespace coda
