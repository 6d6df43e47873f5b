// SPDX-License-Identifier: Apache-2.0
// A node built again over other operands, through its builder (checks and simplifications
// included): what a pass does with every node that it has no rule for.
#pragma once

#include <vector>

#include "coda/graph.h"

namespace coda {

// Inputs and constants are made in operands' graph if it differs (see clone); `like` may be a node
// of it.
Value rebuild(Graph& graph, const Node& like, const std::vector<Value>& operands);

// Every node of `from` in `into`, an empty graph, with the same ids.
void clone(const Graph& from, Graph& into);

// The nodes that the roots reach, roots included.
std::vector<bool> reached_from(const Graph& graph, const std::vector<int>& roots);
// Those that `root` reaches and no earlier call with the same `seen` has listed, operands first: a
// pass that goes from root to root visits each node once.
std::vector<int> newly_reached(const Graph& graph, int root, std::vector<bool>& seen);

}  // namespace coda
