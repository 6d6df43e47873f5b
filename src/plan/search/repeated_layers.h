// SPDX-License-Identifier: Apache-2.0
// Finds the equal layers of a model, and makes a model with fewer of them. Choices are the same for
// each layer, so they are found on the small model, and the work does not depend on the number of
// layers.
#pragma once

#include <optional>
#include <vector>

#include "coda/compile_request.h"

namespace coda {

// The repeating part of a graph. `computed` are the nodes with operands, in order of ids. From the
// second copy on, each node equals the one a period earlier: the same operation on operands that
// are also a period apart, or that are parameters of equal shape, or that both read.
struct RepeatedLayers {
  std::vector<int> computed;
  size_t begin = 0;  // in `computed`, of the first copy
  size_t period = 0;
  int copies = 0;  // whole copies
  size_t end = 0;  // of the repeating part; a partial copy may follow the last whole one
};

// None if there are fewer than `least` copies, or if they are less than half of the graph.
std::optional<RepeatedLayers> find_repeated_layers(const Graph& graph,
                                                   const CompileRequest& request, int least);

struct FewerLayers {
  Graph graph;
  CompileRequest request;
};

// The same model with `copies` layers; the middle ones are removed with their parameters. None if
// other nodes read a removed copy.
std::optional<FewerLayers> with_copies(const Graph& graph, const CompileRequest& request,
                                       const RepeatedLayers& layers, int copies);

}  // namespace coda
