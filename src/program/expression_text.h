// SPDX-License-Identifier: Apache-2.0
// Expressions as text, with as few parentheses as the grammar allows: what the printers of programs
// and of graphs share.
#pragma once

#include <span>
#include <string>

#include "coda/dim.h"
#include "coda/elementwise.h"

namespace coda::program {

// How tightly the outermost operation of an expression binds.
enum class Level : unsigned char { sum, product, unary, primary };

struct Expression {
  std::string text;
  Level level = Level::primary;
  bool is_number = false;
};

std::string number_text(double number);
Expression number_expression(double number);
// In parentheses unless it binds at least as tightly as `level`.
std::string text_at(const Expression& expression, Level level);
Expression elementwise_expression(Elementwise op, std::span<const Expression> operands);

// Pairs within `group` of so many columns.
std::string group_text(const Dim& group, const Dim& columns);

}  // namespace coda::program
