// SPDX-License-Identifier: Apache-2.0
// Layers that the backward recomputes. The values of such a layer that the backward reads become
// new nodes, computed from the layer's inputs, so only these inputs have to be saved.
#pragma once

#include <vector>

#include "coda/graph.h"

namespace coda {

// For each layer from the second one on: all values that the layer starts from. (The first layer
// starts from the graph's inputs.) The last entry has the values from which the nodes after the
// last layer start, so that these nodes are not recomputed.
using LayerStarts = std::vector<std::vector<int>>;

// Returns the gradients in terms of recomputed GEMMs and calls wherever they read a layer's
// forward. `forward`: nodes of the forward, by id. A value that needs no GEMM since the layer's
// start is not duplicated, because the partition computes it from what is saved. Nodes are unique,
// so recomputed GEMMs and calls differ from the forward's by `which` = 1. Their ids come directly
// before the first node that reads them, so that a layer is recomputed just before its backward.
std::vector<int> recompute_layers(Graph& graph, const std::vector<bool>& forward,
                                  const LayerStarts& starts, const std::vector<int>& gradients);

}  // namespace coda
