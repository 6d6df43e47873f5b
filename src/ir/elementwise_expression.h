// SPDX-License-Identifier: Apache-2.0
// Builds values from the expressions of the table of elementwise operations (coda/elementwise.h):
// expansions and derivatives are text there, so that a row is whole without knowing Graphs.
#pragma once

#include <string_view>
#include <vector>

#include "coda/graph.h"

namespace coda {

// What an expression's letters stand for.
struct ExpressionNames {
  std::vector<Value> operands;  // a, b, c
  Value y = {};
  Value g = {};
};

// InternalError where the text is no expression: it is the table's.
Value build_expression(std::string_view expression, const ExpressionNames& names,
                       Where where = Where::current());

}  // namespace coda
