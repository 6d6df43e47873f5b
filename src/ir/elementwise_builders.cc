// SPDX-License-Identifier: Apache-2.0
// Builders of elementwise operations: broadcast checks, the canonical order of operands, and the
// simplifications that keep equal values equal nodes. Composite operations (silu, gelu, sub, ...)
// expand here into base ones, and only here; how is in their rows of the table.
#include <algorithm>
#include <initializer_list>
#include <span>
#include <string>
#include <utility>

#include "coda/error.h"
#include "coda/graph.h"
#include "ir/check.h"
#include "ir/elementwise_expression.h"

namespace coda {
namespace {

bool is_constant(Value v) { return node_of(v).op == Op::constant; }
bool is_constant(Value v, double number) { return is_constant(v) && node_of(v).number == number; }
bool is_call(Value v, Elementwise fn) {
  return node_of(v).op == Op::elementwise && node_of(v).fn == fn;
}

// The broadcast of two sizes: equal, or one of them 1.
bool broadcast_dim(const Dim& a, const Dim& b, Dim& out) {
  if (a == b || b.is(1)) {
    out = a;
    return true;
  }
  const bool fits = a.is(1);
  out = b;  // may be the same object as `a`
  return fits;
}

Value make(Elementwise fn, std::span<const Value> operands, const Where& where) {
  Node node{.op = Op::elementwise, .fn = fn};
  node.operands.reserve(operands.size());
  const auto wrong = [&](const char* problem) {
    fail(info(fn).name.data(), {operands.begin(), operands.end()}, problem, where);
  };
  for (const Value& v : operands) {
    const bool fits = broadcast_dim(node.shape.rows, v.shape().rows, node.shape.rows) &&
                      broadcast_dim(node.shape.cols, v.shape().cols, node.shape.cols);
    if (!fits) {
      wrong(
          "shapes do not broadcast; each dimension must be equal or 1 (reduce, slice or repeat "
          "first)");
    }
    node.operands.push_back(v.id);
  }
  return operands[0].graph->value(operands[0].graph->intern(std::move(node)));
}

Value make(Elementwise fn, std::initializer_list<Value> operands, const Where& where) {
  return make(fn, std::span(operands.begin(), operands.size()), where);
}

Value fold_constants(Elementwise fn, const std::vector<Value>& operands) {
  double x[3] = {0, 0, 0};
  for (size_t i = 0; i < operands.size(); ++i) x[i] = node_of(operands[i]).number;
  return operands[0].graph->constant(info(fn).evaluate(x[0], x[1], x[2]));
}

bool all_constant(const std::vector<Value>& operands) {
  return std::all_of(operands.begin(), operands.end(), [](Value v) { return is_constant(v); });
}

// a + b = y where b is -t and a is y + t (or the other way round); nothing otherwise.
bool cancels(Value a, Value b, Value& y) {
  if (!is_call(a, Elementwise::add) || !is_call(b, Elementwise::mul)) return false;
  if (!is_constant(operand(b, 1), -1)) return false;
  const Value t = operand(b, 0);
  for (size_t i : {0U, 1U}) {
    if (operand(a, i) == t && operand(a, 1 - i).shape() == a.shape()) {
      y = operand(a, 1 - i);
      return true;
    }
  }
  return false;
}

// Larger products of vectors are left as they are multiplied: of powers of powers the factors are
// exponentially many.
constexpr int kMostProducts = 128;

// The factors of a product of vectors: constants multiply into `number`, others are listed. False
// if `products`, what may be looked into, runs out.
bool flatten_product(Value v, double& number, std::vector<Value>& factors, int& products) {
  if (is_constant(v)) {
    number *= node_of(v).number;
  } else if (is_call(v, Elementwise::mul)) {
    --products;
    return products > 0 && flatten_product(operand(v, 0), number, factors, products) &&
           flatten_product(operand(v, 1), number, factors, products);
  } else {
    factors.push_back(v);
  }
  return true;
}

// Removes pairs r, recip(r).
void cancel_reciprocals(std::vector<Value>& factors) {
  for (size_t i = 0; i < factors.size(); ++i) {
    if (!is_call(factors[i], Elementwise::recip)) continue;
    const Value inverse = operand(factors[i], 0);
    auto match = std::find(factors.begin(), factors.end(), inverse);
    if (match == factors.end()) continue;
    const size_t j = static_cast<size_t>(match - factors.begin());
    factors.erase(factors.begin() + static_cast<std::ptrdiff_t>(std::max(i, j)));
    factors.erase(factors.begin() + static_cast<std::ptrdiff_t>(std::min(i, j)));
    cancel_reciprocals(factors);
    return;
  }
}

// A product of vectors and scalars: constants merged and last, the others by id; r * (1 / r) gone.
// A product of a per-row and a per-column vector is a tensor and is left to mul.
Value vector_product(Value a, Value b, const Where& where) {
  double number = 1;
  std::vector<Value> factors;
  int products = kMostProducts;
  if (!flatten_product(a, number, factors, products) ||
      !flatten_product(b, number, factors, products)) {
    if (a.id > b.id) std::swap(a, b);
    return make(Elementwise::mul, {a, b}, where);
  }
  cancel_reciprocals(factors);
  Graph& graph = *a.graph;
  if (factors.empty()) return graph.constant(number);
  std::sort(factors.begin(), factors.end(), [](Value x, Value y) { return x.id < y.id; });
  Value product = factors[0];
  for (size_t i = 1; i < factors.size(); ++i)
    product = make(Elementwise::mul, {product, factors[i]}, where);
  if (number != 1) product = make(Elementwise::mul, {product, graph.constant(number)}, where);
  return product;
}

// Canonical order: the operand with the result's shape first, then by id.
void order(Value& a, Value& b) {
  const bool a_full = !(a.shape().is_vector() && b.shape().is_tensor());
  const bool b_full = !(b.shape().is_vector() && a.shape().is_tensor());
  if (a_full != b_full ? b_full : a.id > b.id) std::swap(a, b);
}

Value value_in(GraphPointer graph, const ValueOrNumber& term) {
  return term.value.graph == nullptr ? graph->constant(term.number) : term.value;
}

std::pair<Value, Value> values_of(const ValueOrNumber& a, const ValueOrNumber& b,
                                  const Where& where) {
  const GraphPointer graph = a.value.graph == nullptr ? b.value.graph : a.value.graph;
  if (graph == nullptr) {
    throw Error("an operation of two numbers" + at(where) +
                ": give it a Value (Graph::constant makes one of a number)");
  }
  return {value_in(graph, a), value_in(graph, b)};
}

}  // namespace

ValueOrNumber::ValueOrNumber(Value v, Where w) : value(v), where(w) {
  if (v.graph == nullptr) throw Error("an operand that no graph has made" + at(w));
}

Value add(Value a, Value b, Where where) {
  graph_of("add", {a, b}, where);
  if (is_constant(a) && is_constant(b)) return fold_constants(Elementwise::add, {a, b});
  if (is_constant(a, 0)) return b;
  if (is_constant(b, 0)) return a;
  if (a == b) return mul(a, a.graph->constant(2), where);
  Value y;
  if (cancels(a, b, y) || cancels(b, a, y)) return y;
  if (a.id > b.id) std::swap(a, b);
  return make(Elementwise::add, {a, b}, where);
}

Value mul(Value a, Value b, Where where) {
  graph_of("mul", {a, b}, where);
  if (is_constant(a) && is_constant(b)) return fold_constants(Elementwise::mul, {a, b});
  if (is_constant(a, 1)) return b;
  if (is_constant(b, 1)) return a;
  const bool outer = (a.shape().is_per_row() && b.shape().is_per_column()) ||
                     (a.shape().is_per_column() && b.shape().is_per_row());
  if (a.shape().is_vector() && b.shape().is_vector() && !outer) {
    const bool fits = a.shape() == b.shape() || a.shape().is_scalar() || b.shape().is_scalar();
    if (!fits) fail("mul", {a, b}, "vectors of different lengths", where);
    return vector_product(a, b, where);
  }
  order(a, b);
  // T * v * v': constants merge, and v * (1 / v) leaves.
  if (b.shape().is_vector() && is_call(a, Elementwise::mul)) {
    const Value inner = operand(a, 1);
    const bool same_kind = inner.shape() == b.shape();
    if (same_kind && inner.shape().is_vector()) {
      if (is_constant(inner) && is_constant(b))
        return mul(operand(a, 0), fold_constants(Elementwise::mul, {inner, b}));
      const Value product = vector_product(inner, b, where);
      if (is_constant(product, 1)) return operand(a, 0);
    }
  }
  return make(Elementwise::mul, {a, b}, where);
}

Value elementwise(Elementwise fn, std::vector<Value> x, Where where) {
  if (static_cast<int>(x.size()) != info(fn).arity) {
    fail(info(fn).name.data(), x, "takes " + std::to_string(info(fn).arity) + " operands", where);
  }
  graph_of(info(fn).name.data(), x, where);
  switch (fn) {
    case Elementwise::add: return add(x[0], x[1], where);
    case Elementwise::mul: return mul(x[0], x[1], where);
    case Elementwise::select: return select(x[0], x[1], x[2], where);
    case Elementwise::recip: return recip(x[0], where);
    default: break;
  }
  if (!info(fn).is_base()) return build_expression(info(fn).expansion, {.operands = x}, where);
  if (all_constant(x)) return fold_constants(fn, x);
  return make(fn, x, where);
}

Value sub(Value a, Value b, Where where) { return elementwise(Elementwise::sub, {a, b}, where); }
Value neg(Value a, Where where) { return elementwise(Elementwise::neg, {a}, where); }
Value div(Value a, Value b, Where where) { return elementwise(Elementwise::div, {a, b}, where); }

Value recip(Value x, Where where) {
  graph_of("recip", {x}, where);
  if (is_constant(x)) return fold_constants(Elementwise::recip, {x});
  if (is_call(x, Elementwise::recip)) return operand(x, 0);
  return make(Elementwise::recip, {x}, where);
}

Value select(Value condition, const ValueOrNumber& first, const ValueOrNumber& second,
             Where where) {
  graph_of("select", {condition}, where);
  const Value a = value_in(condition.graph, first);
  const Value b = value_in(condition.graph, second);
  graph_of("select", {condition, a, b}, where);
  if (a == b && a.shape() == condition.shape()) return a;
  if (is_constant(condition)) {
    const bool first = node_of(condition).number != 0;
    const Value chosen = first ? a : b;
    const Value other = first ? b : a;
    if (chosen.shape() == other.shape() || other.shape().is_scalar()) return chosen;
  }
  return make(Elementwise::select, {condition, a, b}, where);
}

Value maximum(const ValueOrNumber& a, const ValueOrNumber& b, Where where) {
  const auto [x, y] = values_of(a, b, where);
  return elementwise(Elementwise::max, {x, y}, where);
}
Value minimum(const ValueOrNumber& a, const ValueOrNumber& b, Where where) {
  const auto [x, y] = values_of(a, b, where);
  return elementwise(Elementwise::min, {x, y}, where);
}
Value equal(const ValueOrNumber& a, const ValueOrNumber& b, Where where) {
  const auto [x, y] = values_of(a, b, where);
  return elementwise(Elementwise::equal, {x, y}, where);
}
Value less(const ValueOrNumber& a, const ValueOrNumber& b, Where where) {
  const auto [x, y] = values_of(a, b, where);
  return elementwise(Elementwise::less, {x, y}, where);
}
Value exp(Value x, Where where) { return elementwise(Elementwise::exp, {x}, where); }
Value log(Value x, Where where) { return elementwise(Elementwise::log, {x}, where); }
Value rsqrt(Value x, Where where) { return elementwise(Elementwise::rsqrt, {x}, where); }
Value sqrt(Value x, Where where) { return elementwise(Elementwise::sqrt, {x}, where); }
Value sigmoid(Value x, Where where) { return elementwise(Elementwise::sigmoid, {x}, where); }
Value tanh(Value x, Where where) { return elementwise(Elementwise::tanh, {x}, where); }
Value erf(Value x, Where where) { return elementwise(Elementwise::erf, {x}, where); }

Value silu(Value x, Where where) { return elementwise(Elementwise::silu, {x}, where); }
Value gelu(Value x, Where where) { return elementwise(Elementwise::gelu, {x}, where); }
Value gelu_tanh(Value x, Where where) { return elementwise(Elementwise::gelu_tanh, {x}, where); }

Value operator+(const ValueOrNumber& a, const ValueOrNumber& b) {
  const auto [x, y] = values_of(a, b, a.where);
  return add(x, y, a.where);
}
Value operator-(const ValueOrNumber& a, const ValueOrNumber& b) {
  if (b.value.graph == nullptr) return a + ValueOrNumber(-b.number, b.where);
  const auto [x, y] = values_of(a, b, a.where);
  return sub(x, y, a.where);
}
Value operator*(const ValueOrNumber& a, const ValueOrNumber& b) {
  const auto [x, y] = values_of(a, b, a.where);
  return mul(x, y, a.where);
}
Value operator/(const ValueOrNumber& a, const ValueOrNumber& b) {
  const auto [x, y] = values_of(a, b, a.where);
  return div(x, y, a.where);
}
Value operator-(const ValueOrNumber& a) { return neg(values_of(a, a, a.where).first, a.where); }

}  // namespace coda
