// SPDX-License-Identifier: Apache-2.0
// Layers that the backward runs again: what it reads of a layer's forward becomes nodes of its own,
// made of what the layer starts from. So nothing else of the layer has to be saved.
#pragma once

#include <vector>

#include "coda/graph.h"

namespace coda {

// Values of a graph that a layer starts from, all of them, from the second layer on; the first
// starts from the inputs. The last entry is what follows the last layer starts from, so that
// nothing behind it is run again.
using LayerStarts = std::vector<std::vector<int>>;

// The gradients, made of products and calls that are run again wherever a layer's forward is read.
// `forward`: nodes of the forward, by id. What takes no product since the layer's start is not made
// anew: the partition makes it of what is saved. Products and calls that are run again have `which`
// set to 1, else they would be the forward's (nodes are unique). They get their ids right before
// the first node that reads them, so that a layer is run again just before its backward.
std::vector<int> run_layers_again(Graph& graph, const std::vector<bool>& forward,
                                  const LayerStarts& starts, const std::vector<int>& gradients);

}  // namespace coda
