// SPDX-License-Identifier: Apache-2.0
// The bodies of the elementwise operations in float64: the meaning that every backend's code is
// checked against. max and min give NaN when an operand is NaN; sigmoid and silu never overflow.
#include "coda/elementwise.h"

#include <cmath>
#include <limits>
#include <numbers>

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

// In the order of the enumeration.
constexpr std::array<ElementwiseInfo, kElementwiseCount> kTable = {{
    {E::add, "add", 2, true, [](double a, double b, double) { return a + b; }},
    {E::mul, "mul", 2, true, [](double a, double b, double) { return a * b; }},
    {E::max, "max", 2, true,
     [](double a, double b, double) { return std::isunordered(a, b) ? kNaN : (a > b ? a : b); }},
    {E::min, "min", 2, true,
     [](double a, double b, double) { return std::isunordered(a, b) ? kNaN : (a < b ? a : b); }},
    {E::equal, "equal", 2, true, [](double a, double b, double) { return a == b ? 1.0 : 0.0; }},
    {E::less, "less", 2, true, [](double a, double b, double) { return a < b ? 1.0 : 0.0; }},
    {E::select, "select", 3, true, [](double c, double a, double b) { return c != 0 ? a : b; }},
    {E::exp, "exp", 1, true, [](double a, double, double) { return std::exp(a); }},
    {E::log, "log", 1, true, [](double a, double, double) { return std::log(a); }},
    {E::rsqrt, "rsqrt", 1, true, [](double a, double, double) { return 1 / std::sqrt(a); }},
    {E::sqrt, "sqrt", 1, true, [](double a, double, double) { return std::sqrt(a); }},
    {E::recip, "recip", 1, true, [](double a, double, double) { return 1 / a; }},
    {E::sigmoid, "sigmoid", 1, true, [](double a, double, double) { return sigmoid(a); }},
    {E::tanh, "tanh", 1, true, [](double a, double, double) { return std::tanh(a); }},
    {E::erf, "erf", 1, true, [](double a, double, double) { return std::erf(a); }},
    {E::sub, "sub", 2, false, [](double a, double b, double) { return a - b; }},
    {E::div, "div", 2, false, [](double a, double b, double) { return a / b; }},
    {E::neg, "neg", 1, false, [](double a, double, double) { return -a; }},
    {E::silu, "silu", 1, false, [](double a, double, double) { return a * sigmoid(a); }},
    {E::gelu, "gelu", 1, false, [](double a, double, double) { return gelu(a); }},
    {E::gelu_tanh, "gelu_tanh", 1, false, [](double a, double, double) { return gelu_tanh(a); }},
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
