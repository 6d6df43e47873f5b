// SPDX-License-Identifier: Apache-2.0
// Sums are brought to as few products as possible: equal factors leave, then products become K
// segments of one product; rank-one terms join a product's operand; column sums that share a
// product join; a sum with a scatter becomes a scatter into it. Needs: sink_scales (factors stand
// outside products). Promises: equal values; frozen nodes stay themselves.
#pragma once

#include <vector>

#include "coda/graph.h"

namespace coda {

std::vector<int> merge_gemms(Graph& graph, const std::vector<int>& roots,
                             const std::vector<bool>& frozen);

}  // namespace coda
