// SPDX-License-Identifier: Apache-2.0
// Whether what a product makes of a norm's result is normalised by a second norm before anything
// else is added to it. There rounding h is a scale of its row, which the second norm takes out
// again, and rounding a folded weight W ⊙ w is not (docs/numerics.md).
#pragma once

#include <vector>

#include "coda/graph.h"

namespace coda {

// One answer a factor: each is a per-column factor of the graph as it was written. Followed from it
// are row-wise operations: products with weights, elementwise functions, columns in another order;
// not calls that mix rows, and no sum with a tensor that does not come from the factor.
std::vector<bool> normed_again(const Graph& graph, const std::vector<int>& factors);

}  // namespace coda
