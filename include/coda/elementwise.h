// SPDX-License-Identifier: Apache-2.0
// The table of elementwise operations: one row an operation, with its name, arity, float64 body,
// and its derivatives or its expansion. Base operations are what the compiler's passes see;
// composite ones (silu, gelu, ...) are for people, and expand into base ones when a graph is built.
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

// The operands are a, b and c. An expression is text of operations of the table, + - * / and
// numbers, over the operands and, in a derivative, the result y and its cotangent g:
// "g * (1 - y * y)". Graphs are built from it by ir/elementwise_expression.h.
struct ElementwiseInfo {
  Elementwise op;
  std::string_view name;
  int arity;
  double (*evaluate)(double a, double b, double c);  // unused operands are ignored
  // Of a base operation, for each operand: g times the derivative by it; "0" where that is zero
  // everywhere.
  std::array<std::string_view, 3> derivatives;
  std::string_view expansion;  // of a composite operation: the same in base ones

  bool is_base() const { return expansion.empty(); }
};

// The row of an operation. select(c, a, b) is a where c is not 0, else b; comparisons give 1 or 0:
// of NaN not_equal gives 1, others 0. At 0 relu and abs have the derivative 0. random(seed, i, j)
// is in [0, 1), the same for the same three whole numbers on every backend (Philox 2x32-10).
const ElementwiseInfo& info(Elementwise op);
std::optional<Elementwise> elementwise_by_name(std::string_view name);

}  // namespace CODA_API coda
