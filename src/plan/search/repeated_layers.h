// SPDX-License-Identifier: Apache-2.0
// A model's layers are copies of one another. What is chosen for each of them is the same, so it is
// found on a model of few layers, and the work of finding it does not depend on how many there are.
#pragma once

#include <optional>
#include <vector>

#include "coda/compile_request.h"

namespace coda {

// The part of a graph that repeats: of the computed nodes (those with operands), in order of their
// ids, each from the second copy on equals the one a period before: it does the same with operands
// that are a period apart too, that are parameters of equal shape, or that both read.
struct RepeatedLayers {
  std::vector<int> computed;
  size_t begin = 0;  // in `computed`, of the first copy
  size_t period = 0;
  int copies = 0;  // whole ones
  size_t end = 0;  // of what repeats; the last copy may be followed by a part of one more
};

// None where fewer than `least` copies were found, or what repeats is less than half of the graph.
std::optional<RepeatedLayers> find_repeated_layers(const Graph& graph,
                                                   const CompileRequest& request, int least);

struct FewerLayers {
  Graph graph;
  CompileRequest request;
};

// The same with `copies` of them, the middle ones left out with their parameters. None where
// something else reads a copy that is left out.
std::optional<FewerLayers> with_copies(const Graph& graph, const CompileRequest& request,
                                       const RepeatedLayers& layers, int copies);

}  // namespace coda
