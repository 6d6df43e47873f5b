// SPDX-License-Identifier: Apache-2.0
// The reference: a graph run node by node in float64 over whole matrices. Slow and obvious; every
// test's ground truth.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "coda/graph.h"
#include "coda/operation.h"

namespace coda {

// Called after each node with its operands and its value (an opaque call's: one a result), which it
// may change: how a test rounds what a machine would round.
using AfterNode = std::function<void(int id, const std::vector<const Matrix*>& operands,
                                     std::vector<Matrix>& value)>;

// Values of the roots, in their order. `inputs` by name, row-major, of the evaluated shapes. Error
// if one is missing or has the wrong size.
std::vector<Matrix> evaluate(const Graph& graph, const std::vector<int>& roots,
                             const std::map<std::string, std::vector<double>>& inputs,
                             const DimValues& sizes, const AfterNode& after = {});

}  // namespace coda
