// SPDX-License-Identifier: Apache-2.0
// Whether what a product makes of a norm's result is normalised by a second norm before anything
// else is added to it. There rounding h is a scale of its row, which the second norm takes out
// again, and rounding a folded weight W ⊙ w is not (docs/numerics.md).
#pragma once

#include "coda/graph.h"

namespace coda {

// `w` is a per-column factor of the graph as it was written. Followed from it are row-wise
// operations: products with weights, elementwise functions, columns in another order; not calls
// that mix rows, and no sum with a tensor that does not come from w.
bool is_normed_again(const Graph& graph, int w);

}  // namespace coda
