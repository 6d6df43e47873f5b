// SPDX-License-Identifier: Apache-2.0
#include "grad/elementwise_derivatives.h"

#include <array>
#include <cmath>
#include <numbers>

#include "coda/error.h"

namespace coda {
namespace {

using Operands = std::vector<Value>;
using Rule = Value (*)(Value y, const Operands& x, size_t i, Value g);

struct Row {
  Elementwise fn;
  Rule rule;  // null: the derivative is zero
};

Value constant(Value like, double number) { return like.graph->constant(number); }

// Of max and min the first operand takes the gradient of a tie.
Value of_max(Value, const Operands& x, size_t i, Value g) {
  const Value second_wins = less(x[0], x[1]);
  return i == 0 ? select(second_wins, constant(g, 0), g) : select(second_wins, g, constant(g, 0));
}
Value of_min(Value, const Operands& x, size_t i, Value g) {
  const Value second_wins = less(x[1], x[0]);
  return i == 0 ? select(second_wins, constant(g, 0), g) : select(second_wins, g, constant(g, 0));
}
Value of_select(Value, const Operands& x, size_t i, Value g) {
  if (i == 0) return {};
  return i == 1 ? select(x[0], g, constant(g, 0)) : select(x[0], constant(g, 0), g);
}

constexpr std::array kRows{
    Row{Elementwise::add, [](Value, const Operands&, size_t, Value g) { return g; }},
    Row{Elementwise::mul,
        [](Value, const Operands& x, size_t i, Value g) { return mul(g, x[1 - i]); }},
    Row{Elementwise::max, of_max},
    Row{Elementwise::min, of_min},
    Row{Elementwise::equal, nullptr},
    Row{Elementwise::less, nullptr},
    Row{Elementwise::select, of_select},
    Row{Elementwise::exp, [](Value y, const Operands&, size_t, Value g) { return g * y; }},
    Row{Elementwise::log,
        [](Value, const Operands& x, size_t, Value g) { return g * recip(x[0]); }},
    Row{Elementwise::rsqrt,
        [](Value y, const Operands&, size_t, Value g) { return g * (y * y * y * -0.5); }},
    Row{Elementwise::sqrt,
        [](Value y, const Operands&, size_t, Value g) { return g * (recip(y) * 0.5); }},
    Row{Elementwise::recip,
        [](Value y, const Operands&, size_t, Value g) { return g * (y * y * -1.0); }},
    Row{Elementwise::sigmoid,
        [](Value y, const Operands&, size_t, Value g) { return g * (y * (constant(y, 1) - y)); }},
    Row{Elementwise::tanh,
        [](Value y, const Operands&, size_t, Value g) { return g * (constant(y, 1) - y * y); }},
    Row{Elementwise::erf,
        [](Value, const Operands& x, size_t, Value g) {
          return g * (exp(x[0] * x[0] * -1.0) * (2 / std::sqrt(std::numbers::pi)));
        }},
};

}  // namespace

Value elementwise_derivative(Elementwise fn, Value y, const std::vector<Value>& x, size_t i,
                             Value g) {
  for (const Row& row : kRows) {
    if (row.fn == fn) return row.rule == nullptr ? Value{} : row.rule(y, x, i, g);
  }
  throw InternalError("no derivative of " + std::string(info(fn).name) +
                      ": only base operations stand in a graph");
}

}  // namespace coda
