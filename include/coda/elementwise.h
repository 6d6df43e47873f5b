// SPDX-License-Identifier: Apache-2.0
// The table of elementwise operations: one row an operation, with its name, arity and float64 body.
// Base operations are what the compiler's passes see; composite ones (silu, gelu, ...) are for
// people, and expand into base ones when a program is lifted to a graph (their expansion is in
// ir/elementwise.cc, beside the derivatives).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace coda {

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
  // Composite.
  sub,
  div,
  neg,
  silu,
  gelu,
  gelu_tanh,
};
inline constexpr int kElementwiseCount = static_cast<int>(Elementwise::gelu_tanh) + 1;

struct ElementwiseInfo {
  Elementwise op;
  std::string_view name;
  int arity;
  bool is_base;
  double (*evaluate)(double a, double b, double c);  // unused operands are ignored
};

// The row of an operation. select(c, a, b) is a where c is not 0, else b; equal and less give 1 or
// 0.
const ElementwiseInfo& info(Elementwise op);
std::optional<Elementwise> elementwise_by_name(std::string_view name);

}  // namespace coda
