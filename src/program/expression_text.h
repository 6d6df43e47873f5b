// SPDX-License-Identifier: Apache-2.0
// Prints expressions with as few parentheses as the grammar allows, for programs and for graphs.
#pragma once

#include <span>
#include <string>

#include "coda/dim.h"
#include "coda/elementwise.h"

namespace coda::program {

// The precedence of the outermost operation of an expression.
enum class Level : unsigned char { sum, product, unary, primary };

struct Expression {
  std::string text;
  Level level = Level::primary;
  bool is_number = false;
};

std::string number_text(double number);
Expression number_expression(double number);
// With parentheses unless its precedence is at least `level`.
std::string text_at(const Expression& expression, Level level);
Expression elementwise_expression(Elementwise op, std::span<const Expression> operands);

// The text for pairs within `group` of `columns` columns.
std::string group_text(const Dim& group, const Dim& columns);

}  // namespace coda::program
