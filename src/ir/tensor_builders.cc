// SPDX-License-Identifier: Apache-2.0
// Builders of reductions, matrix products and views: checks and simplifications. A
// product with a vector is never a matmul: it is a reduction over the other operand's tile, so that
// it can join the program that has that tile.
#include <algorithm>

#include "base/columns.h"
#include "coda/error.h"
#include "coda/graph.h"
#include "ir/check.h"
#include "ir/elementwise_expression.h"

namespace coda {
namespace {

Value make(Value any, Op op, Shape shape, std::vector<int> operands) {
  Node node{.op = op, .shape = std::move(shape), .operands = std::move(operands)};
  return any.graph->value(any.graph->intern(std::move(node)));
}

Value make(Value any, Node node) { return any.graph->value(any.graph->intern(std::move(node))); }

const Dim& rows_of(const MatmulOperands& s) {
  return s.transposes.a ? s.a.shape().cols : s.a.shape().rows;
}
const Dim& depth_of(const MatmulOperands& s) {
  return s.transposes.a ? s.a.shape().rows : s.a.shape().cols;
}
const Dim& cols_of(const MatmulOperands& s) {
  return s.transposes.b ? s.b.shape().rows : s.b.shape().cols;
}

Value as_row(Value v) { return v.shape().rows.is(1) ? v : transpose(v); }     // [1, K]
Value as_column(Value v) { return v.shape().cols.is(1) ? v : transpose(v); }  // [K, 1]

// A segment one of whose operands is a vector, as a reduction or an outer product.
Value vector_segment(const MatmulOperands& s, const Where& where) {
  if (s.a.shape().is_vector() && s.b.shape().is_vector()) {
    if (depth_of(s).is(1)) return mul(as_column(s.a), as_row(s.b), where);
    return row_sum(mul(as_row(s.a), as_row(s.b), where), where);
  }
  if (s.a.shape().is_vector()) {
    return s.transposes.b ? transpose(row_sum(mul(s.b, as_row(s.a), where), where), where)
                          : col_sum(mul(s.b, as_column(s.a), where), where);
  }
  return s.transposes.a ? transpose(col_sum(mul(s.a, as_column(s.b), where), where), where)
                        : row_sum(mul(s.a, as_row(s.b), where), where);
}

}  // namespace

Value row_sum(Value x, Where where) {
  graph_of("row_sum", {x}, where);
  if (x.shape().cols.is(1)) return x;
  return make(x, Op::row_sum, {x.shape().rows, 1}, {x.id});
}

Value col_sum(Value x, Where where) {
  graph_of("col_sum", {x}, where);
  if (x.shape().rows.is(1)) return x;
  return make(x, Op::col_sum, {1, x.shape().cols}, {x.id});
}

Value row_mean(Value x, Where where) {
  graph_of("row_mean", {x}, where);
  return mul(row_sum(x, where), x.graph->reciprocal_dim(x.shape().cols), where);
}

Value row_reduce(Value x, PartialKind kind, Where where) {
  if (kind == PartialKind::sum) return row_sum(x, where);
  graph_of("row_reduce", {x}, where);
  if (x.shape().cols.is(1)) return build_expression(info(kind).of_one, {.operands = {x}}, where);
  Node node{
      .op = Op::row_reduce, .shape = {x.shape().rows, 1}, .operands = {x.id}, .reduction = kind};
  return make(x, std::move(node));
}

Value col_reduce(Value x, PartialKind kind, Where where) {
  if (kind == PartialKind::sum) return col_sum(x, where);
  graph_of("col_reduce", {x}, where);
  // A vector's elements are reduced as a row.
  if (x.shape().is_vector()) {
    return transpose(row_reduce(transpose(x, where), kind, where), where);
  }
  Node node{
      .op = Op::col_reduce, .shape = {1, x.shape().cols}, .operands = {x.id}, .reduction = kind};
  return make(x, std::move(node));
}

Value row_entropy(Value x, Where where) { return row_reduce(x, PartialKind::entropy, where); }
Value row_logsumexp(Value x, Where where) { return row_reduce(x, PartialKind::log_sum_exp, where); }

Value row_m2(Value x, Where where) { return row_reduce(x, PartialKind::mean_m2, where); }

Value select_column(Value x, Value index, Where where) {
  graph_of("select_column", {x, index}, where);
  if (index.shape().rows != x.shape().rows || !index.shape().cols.is(1))
    fail("select_column", {x, index}, "the index must be one value a row", where);
  return make(x, Op::select_column, {x.shape().rows, 1}, {x.id, index.id});
}

Value group_sum(Value x, const Dim& group, Where where) {
  graph_of("group_sum", {x}, where);
  const bool constant = group.is_constant() && group.constant() > 0;
  const std::optional<Dim> groups = constant ? quotient(x.shape().cols, group) : std::nullopt;
  if (!groups) {
    fail("group_sum", {x}, "columns must be a multiple of the group " + group.text(), where);
  }
  Node node{
      .op = Op::group_sum, .shape = {x.shape().rows, *groups}, .operands = {x.id}, .dim = group};
  return make(x, std::move(node));
}

Value group_repeat(Value x, const Dim& group, Where where) {
  graph_of("group_repeat", {x}, where);
  if (!group.is_constant() || group.constant() <= 0) {
    fail("group_repeat", {x}, "the group must be a positive constant, not " + group.text(), where);
  }
  Node node{.op = Op::group_repeat,
            .shape = {x.shape().rows, group.constant() * x.shape().cols},
            .operands = {x.id},
            .dim = group};
  return make(x, std::move(node));
}

Value matmul(const std::vector<MatmulOperands>& segments, Where where) {
  std::vector<Value> all;
  for (const MatmulOperands& s : segments) all.insert(all.end(), {s.a, s.b});
  Graph& graph = graph_of("matmul", all, where);
  Node node{.op = Op::matmul, .shape = {rows_of(segments[0]), cols_of(segments[0])}};
  bool has_vector = false;
  for (const MatmulOperands& s : segments) {
    const Dim& depth_b = s.transposes.b ? s.b.shape().cols : s.b.shape().rows;
    if (depth_of(s) != depth_b) {
      fail("matmul", {s.a, s.b},
           "contracts " + depth_of(s).text() + " with " + depth_b.text() +
               "; transpose an operand or check the weight's layout ([out, in] for linear, [in, "
               "out] for conv1d)",
           where);
    }
    if (rows_of(s) != node.shape.rows || cols_of(s) != node.shape.cols) {
      fail("matmul", {s.a, s.b},
           "a segment's product is not " + node.shape.text() + " as the first one's", where);
    }
    has_vector = has_vector || s.a.shape().is_vector() || s.b.shape().is_vector();
    node.operands.push_back(s.a.id);
    node.operands.push_back(s.b.id);
    node.transposes.push_back(s.transposes);
  }
  if (!has_vector) return make(segments[0].a, std::move(node));
  Value sum = graph.constant(0);
  for (const MatmulOperands& s : segments) {
    const bool vector = s.a.shape().is_vector() || s.b.shape().is_vector();
    sum = add(sum, vector ? vector_segment(s, where) : matmul({s}, where), where);
  }
  return sum;
}

Value linear(Value x, Value w, Where where) { return matmul({{x, w, {false, true}}}, where); }
Value conv1d(Value x, Value w, Where where) { return matmul({{x, w, {false, false}}}, where); }

Value split_pair(Value x, const Dim& group, int which, Where where) {
  graph_of("split_pair", {x}, where);
  if (which != 0 && which != 1) {
    fail("split_pair", {x}, "a pair has the members 0 and 1, not " + std::to_string(which), where);
  }
  const auto half = x.shape().cols.half();
  if (!half) fail("split_pair", {x}, "an odd number of columns has no pairs", where);
  if (!has_pairs(x.shape().cols, group))
    fail("split_pair", {x}, "columns are not a multiple of the group " + group.text(), where);
  const Node& source = node_of(x);
  if (source.op == Op::merge_pairs && source.dim == group)
    return operand(x, static_cast<size_t>(which));
  Node node{.op = Op::split_pair,
            .shape = {x.shape().rows, *half},
            .operands = {x.id},
            .dim = group,
            .which = which};
  return make(x, std::move(node));
}

Value merge_pairs(Value first, Value second, const Dim& group, Where where) {
  graph_of("merge_pairs", {first, second}, where);
  if (first.shape() != second.shape())
    fail("merge_pairs", {first, second}, "the members' shapes differ", where);
  const Dim wide = 2 * first.shape().cols;
  if (!has_pairs(wide, group)) {
    fail("merge_pairs", {first, second},
         wide.text() + " columns are not a multiple of the group " + group.text(), where);
  }
  const Node& a = node_of(first);
  const Node& b = node_of(second);
  if (a.op == Op::split_pair && b.op == Op::split_pair && a.operands == b.operands &&
      a.which == 0 && b.which == 1 && a.dim == group && b.dim == group) {
    return operand(first, 0);
  }
  Node node{.op = Op::merge_pairs,
            .shape = {first.shape().rows, wide},
            .operands = {first.id, second.id},
            .dim = group};
  return make(first, std::move(node));
}

Value slice_columns(Value x, const Dim& offset, const Dim& cols, Where where) {
  graph_of("slice_columns", {x}, where);
  if (offset.is(0) && cols == x.shape().cols) return x;
  // What depends on symbols only a session can tell.
  const auto below = [](const Dim& size, int64_t least) {
    return size.is_constant() && size.constant() < least;
  };
  const Dim end = offset + cols;
  if (below(offset, 0) || below(cols, 1) || below(x.shape().cols - end, 0)) {
    fail("slice_columns", {x},
         "columns [" + offset.text() + ", " + end.text() + ") are not all there", where);
  }
  const Node& source = node_of(x);
  if (source.op == Op::concat_columns) {
    Dim start = 0;
    for (int part : source.operands) {
      const Value v = x.graph->value(part);
      if (start == offset && v.shape().cols == cols) return v;
      start = start + v.shape().cols;
    }
  }
  Node node{
      .op = Op::slice_columns, .shape = {x.shape().rows, cols}, .operands = {x.id}, .dim = offset};
  return make(x, std::move(node));
}

Value concat_columns(const std::vector<Value>& parts, Where where) {
  graph_of("concat_columns", parts, where);
  if (parts.size() == 1) return parts[0];
  Node node{.op = Op::concat_columns, .shape = {parts[0].shape().rows, 0}};
  bool whole =
      node_of(parts[0]).op == Op::slice_columns;  // adjacent slices of one value that cover it
  for (const Value& part : parts) {
    if (part.shape().rows != node.shape.rows) fail("concat_columns", parts, "rows differ", where);
    const Node& slice = node_of(part);
    whole = whole && slice.op == Op::slice_columns &&
            slice.operands == node_of(parts[0]).operands && slice.dim == node.shape.cols;
    node.shape.cols = node.shape.cols + part.shape().cols;
    node.operands.push_back(part.id);
  }
  if (whole && operand(parts[0], 0).shape().cols == node.shape.cols) return operand(parts[0], 0);
  return make(parts[0], std::move(node));
}

// The gradient of a repetition by a number is a sum of as many slices.
Value repeat_columns(Value x, const Dim& repeat, Where where) {
  graph_of("repeat_columns", {x}, where);
  constexpr int64_t kMost = 1024;
  if (repeat.is_constant() && (repeat.constant() < 1 || repeat.constant() > kMost)) {
    fail("repeat_columns", {x},
         "repeats " + repeat.text() + " times, where 1 to " + std::to_string(kMost) +
             " are supported",
         where);
  }
  if (repeat.is(1)) return x;
  const std::optional<Dim> columns = product(repeat, x.shape().cols);
  if (!columns)
    fail("repeat_columns", {x},
         "has " + x.shape().cols.text() + " columns, which " + repeat.text() +
             " times have no linear size; one of the two must be a number",
         where);
  Node node{.op = Op::repeat_columns,
            .shape = {x.shape().rows, *columns},
            .operands = {x.id},
            .repeat = repeat};
  return make(x, std::move(node));
}

Value gather_rows(Value table, Value index, Where where) {
  graph_of("gather_rows", {table, index}, where);
  if (!index.shape().cols.is(1))
    fail("gather_rows", {table, index}, "the index must be one value a row", where);
  return make(table, Op::gather_rows, {index.shape().rows, table.shape().cols},
              {table.id, index.id});
}

Value transpose(Value v, Where where) {
  graph_of("transpose", {v}, where);
  if (!v.shape().is_vector())
    fail("transpose", {v}, "only vectors are transposed; a matmul takes a transposed operand",
         where);
  if (v.shape().is_scalar()) return v;
  if (node_of(v).op == Op::transpose) return operand(v, 0);
  return make(v, Op::transpose, {v.shape().cols, v.shape().rows}, {v.id});
}

}  // namespace coda
