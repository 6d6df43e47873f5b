// SPDX-License-Identifier: Apache-2.0
// Finds out whether the GEMM of a norm's result is normalised by a second norm before anything is
// added to it. Then rounding h only scales its row, which the second norm removes; rounding a
// folded weight W ⊙ w is not removed (docs/numerics.md).
#pragma once

#include <vector>

#include "coda/graph.h"

namespace coda {

// One answer per factor; a factor is a per-column factor of the original graph. Follows row-wise
// operations: GEMMs with weights, elementwise functions, reordered columns. Does not follow calls
// that mix rows or sums with tensors that do not depend on the factor.
std::vector<bool> has_second_norm(const Graph& graph, const std::vector<int>& factors);

}  // namespace coda
