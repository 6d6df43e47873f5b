// SPDX-License-Identifier: Apache-2.0
// The table of elementwise operations. Each row has a name, arity, float64 implementation, and
// derivatives or an expansion. Compiler passes see only base operations; composite ones (silu,
// gelu, ...) are expanded into base operations when a graph is built.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "coda/api.h"

namespace CODA_API coda {

enum class Elementwise : uint8_t {
  // Base.
  add,
  mul,
  max,
  min,
  equal,
  less,
  select,
  exp,
  log,
  rsqrt,
  sqrt,
  recip,
  sigmoid,
  tanh,
  erf,
  abs,
  random,
  stochastic_bf16,
  // Composite.
  sub,
  div,
  neg,
  silu,
  gelu,
  gelu_tanh,
  relu,
  less_equal,
  not_equal,
};
inline constexpr int kElementwiseCount = static_cast<int>(Elementwise::not_equal) + 1;

// The operands are a, b and c. An expression is text that uses operations of the table, + - * /,
// numbers and the operands; derivatives also use the result y and its cotangent g, for example "g *
// (1 - y * y)". ir/elementwise_expression.h builds graphs from expressions.
struct ElementwiseInfo {
  Elementwise op;
  std::string_view name;
  int arity;
  double (*evaluate)(double a, double b, double c);  // unused operands are ignored
  // Base operations only: for each operand, g times the partial derivative; "0" if that is zero
  // everywhere.
  std::array<std::string_view, 3> derivatives;
  std::string_view expansion;  // composite operations only: the result in base operations

  bool is_base() const { return expansion.empty(); }
};

// The row of an operation. select(c, a, b) is a where c is not 0, else b. Comparisons give 1 or 0;
// with NaN, not_equal gives 1 and the others 0. relu and abs have derivative 0 at 0. random(seed,
// i, j) is in [0, 1) and depends only on the three integers, on every backend (Philox 2x32-10).
// stochastic_bf16(x, u) is one of the two bf16 numbers around x: with u uniform in [0, 1), x on
// average. Its derivative is 0, because it is a step function.
const ElementwiseInfo& info(Elementwise op);
std::optional<Elementwise> elementwise_by_name(std::string_view name);

}  // namespace CODA_API coda
