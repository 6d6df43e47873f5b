// SPDX-License-Identifier: Apache-2.0
// The search's own switches, for tests: compile() for choices that are forced instead of searched,
// and for a part of a model whose row statistics another part makes.
#pragma once

#include <vector>

#include "coda/compile.h"

namespace coda {

struct Forced {
  // By the order in which candidates appear: a column factor goes into the weight, a row factor to
  // the gradient. Both empty: searched.
  std::vector<bool> fold = {};
  std::vector<bool> pin = {};
  // Per-row vectors of the graph that another plan has made (a norm's reciprocal of the layer
  // before): read from the tensor of that name, not computed. Gradients are those of the graph as
  // it stands.
  std::vector<NamedValue> given = {};
};

// What the search did. In a model of many layers `plans` is 1, and the rest does not depend on how
// many layers there are.
struct SearchWork {
  int plans = 0;         // of the whole graph
  int plans_of_few = 0;  // of the same model with few layers, on which its choices were found
  int nodes_of_few = 0;  // of the graphs of those
};

Compiled compile(const Graph& graph, const CompileRequest& request, const CompileOptions& options,
                 const Forced& forced, SearchWork* work = nullptr);

}  // namespace coda
