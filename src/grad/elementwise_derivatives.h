// SPDX-License-Identifier: Apache-2.0
// The derivative of each base elementwise operation, one row an operation.
#pragma once

#include <vector>

#include "coda/graph.h"

namespace coda {

// g ⊙ dy/dx_i, for y = fn(x...) and the cotangent g of y; a Value without a graph where it is zero
// everywhere.
Value elementwise_derivative(Elementwise fn, Value y, const std::vector<Value>& x, size_t i,
                             Value g);

}  // namespace coda
