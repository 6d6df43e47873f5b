// SPDX-License-Identifier: Apache-2.0
// What every pass promises of the graph that it leaves: operands stand before their readers, and
// each node has the shape that its builder would give it.
#pragma once

#include <vector>

#include "coda/graph.h"

namespace coda {

// Throws InternalError naming the node unless all that the roots reach is well formed.
void verify(const Graph& graph, const std::vector<int>& roots);

}  // namespace coda
