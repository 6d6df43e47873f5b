// SPDX-License-Identifier: Apache-2.0
// The elementwise operations. Their bodies in float64 are the meaning that every backend's code is
// checked against; their derivatives and expansions are checked against the bodies. max and min
// give NaN when an operand is NaN; sigmoid and silu never overflow.
#include "coda/elementwise.h"

#include <cmath>
#include <limits>
#include <numbers>

#include "base/philox.h"
#include "base/stochastic_bf16.h"

namespace coda {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

double sigmoid(double x) {
  if (x >= 0) return 1 / (1 + std::exp(-x));
  const double e = std::exp(x);
  return e / (1 + e);
}

// 1 + erf would cancel for negative x; erfc does not.
double gelu(double x) { return 0.5 * x * std::erfc(-x / std::numbers::sqrt2); }

double gelu_tanh(double x) {
  const double scale = std::sqrt(2 / std::numbers::pi);
  return 0.5 * x * (1 + std::tanh(scale * (x + 0.044715 * x * x * x)));
}

using E = Elementwise;

// In the order of the enumeration. Of max and min the first operand takes the gradient of a tie.
constexpr std::array<ElementwiseInfo, kElementwiseCount> kTable = {{
    {E::add, "add", 2, [](double a, double b, double) { return a + b; }, {"g", "g"}, ""},
    {E::mul, "mul", 2, [](double a, double b, double) { return a * b; }, {"g * b", "g * a"}, ""},
    {E::max,
     "max",
     2,
     [](double a, double b, double) { return std::isunordered(a, b) ? kNaN : (a > b ? a : b); },
     {"select(less(a, b), 0, g)", "select(less(a, b), g, 0)"},
     ""},
    {E::min,
     "min",
     2,
     [](double a, double b, double) { return std::isunordered(a, b) ? kNaN : (a < b ? a : b); },
     {"select(less(b, a), 0, g)", "select(less(b, a), g, 0)"},
     ""},
    {E::equal,
     "equal",
     2,
     [](double a, double b, double) { return a == b ? 1.0 : 0.0; },
     {"0", "0"},
     ""},
    {E::less,
     "less",
     2,
     [](double a, double b, double) { return a < b ? 1.0 : 0.0; },
     {"0", "0"},
     ""},
    {E::select,
     "select",
     3,
     [](double a, double b, double c) { return a != 0 ? b : c; },
     {"0", "select(a, g, 0)", "select(a, 0, g)"},
     ""},
    {E::exp, "exp", 1, [](double a, double, double) { return std::exp(a); }, {"g * y"}, ""},
    {E::log, "log", 1, [](double a, double, double) { return std::log(a); }, {"g * recip(a)"}, ""},
    {E::rsqrt,
     "rsqrt",
     1,
     [](double a, double, double) { return 1 / std::sqrt(a); },
     {"g * (y * y * y * -0.5)"},
     ""},
    {E::sqrt,
     "sqrt",
     1,
     [](double a, double, double) { return std::sqrt(a); },
     {"g * (recip(y) * 0.5)"},
     ""},
    {E::recip,
     "recip",
     1,
     [](double a, double, double) { return 1 / a; },
     {"g * (y * y * -1)"},
     ""},
    {E::sigmoid,
     "sigmoid",
     1,
     [](double a, double, double) { return sigmoid(a); },
     {"g * (y * (1 - y))"},
     ""},
    {E::tanh,
     "tanh",
     1,
     [](double a, double, double) { return std::tanh(a); },
     {"g * (1 - y * y)"},
     ""},
    {E::erf,
     "erf",
     1,
     [](double a, double, double) { return std::erf(a); },
     {"g * (exp(a * a * -1) * (2 / sqrt(3.141592653589793)))"},
     ""},
    {E::abs,
     "abs",
     1,
     [](double a, double, double) { return std::fabs(a); },
     {"select(less(a, 0), g * -1, select(less(0, a), g, 0))"},
     ""},
    {E::random,
     "random",
     3,
     [](double a, double b, double c) {
       const auto nearest = [](double x) { return static_cast<float>(x); };
       return static_cast<double>(random_number(nearest(a), nearest(b), nearest(c)));
     },
     {"0", "0", "0"},
     ""},
    {E::stochastic_bf16,
     "stochastic_bf16",
     2,
     [](double a, double b, double) {
       return static_cast<double>(stochastic_bf16(static_cast<float>(a), static_cast<float>(b)));
     },
     {"0", "0"},
     ""},
    {E::sub, "sub", 2, [](double a, double b, double) { return a - b; }, {}, "a + b * -1"},
    {E::div, "div", 2, [](double a, double b, double) { return a / b; }, {}, "a * recip(b)"},
    {E::neg, "neg", 1, [](double a, double, double) { return -a; }, {}, "a * -1"},
    {E::silu,
     "silu",
     1,
     [](double a, double, double) { return a * sigmoid(a); },
     {},
     "a * sigmoid(a)"},
    {E::gelu,
     "gelu",
     1,
     [](double a, double, double) { return gelu(a); },
     {},
     "a * ((erf(a * (1 / sqrt(2))) + 1) * 0.5)"},
    {E::gelu_tanh,
     "gelu_tanh",
     1,
     [](double a, double, double) { return gelu_tanh(a); },
     {},
     "a * ((tanh(a * (a * a * (0.044715 * sqrt(2 / 3.141592653589793)) + "
     "sqrt(2 / 3.141592653589793))) + 1) * 0.5)"},
    // Of a tie max has the gradient of its first operand.
    {E::relu,
     "relu",
     1,
     [](double a, double, double) { return std::isnan(a) ? a : (a > 0 ? a : 0.0); },
     {},
     "max(0, a)"},
    {E::less_equal,
     "less_equal",
     2,
     [](double a, double b, double) { return a <= b ? 1.0 : 0.0; },
     {},
     "max(less(a, b), equal(a, b))"},
    {E::not_equal,
     "not_equal",
     2,
     [](double a, double b, double) { return a != b ? 1.0 : 0.0; },
     {},
     "equal(equal(a, b), 0)"},
}};

constexpr bool in_order() {
  for (int i = 0; i < kElementwiseCount; ++i) {
    if (static_cast<int>(kTable[i].op) != i) return false;
  }
  return true;
}
static_assert(in_order());

}  // namespace

const ElementwiseInfo& info(Elementwise op) { return kTable[static_cast<int>(op)]; }

std::optional<Elementwise> elementwise_by_name(std::string_view name) {
  for (const ElementwiseInfo& row : kTable) {
    if (row.name == name) return row.op;
  }
  return std::nullopt;
}

}  // namespace coda
