// SPDX-License-Identifier: Apache-2.0
#include "grad/differentiate.h"

#include <algorithm>
#include <map>
#include <set>

#include "coda/error.h"
#include "coda/operation.h"
#include "ir/elementwise_expression.h"
#include "ir/op_names.h"

namespace coda {
namespace {

// 0 of v's shape, whatever v holds (a product with 0 would keep NaN and infinity).
Value zeros_like(Value v) { return less(v, v); }

Value broadcast_to(Value v, const Shape& shape) {
  if (v.shape().cols.is(1) && !shape.cols.is(1)) v = mul(v, v.graph->ones(shape.cols));
  if (v.shape().rows.is(1) && !shape.rows.is(1)) v = mul(v, transpose(v.graph->ones(shape.rows)));
  return v;
}

class Reverse {
 public:
  Reverse(Graph& graph, const std::vector<int>& wanted) : graph_(graph), size_(graph.size()) {
    depends_.assign(static_cast<size_t>(size_), false);
    for (int id : wanted) depends_[static_cast<size_t>(id)] = true;
    for (int id = 0; id < size_; ++id) {
      for (int operand : graph.node(id).operands) {
        if (depends(operand)) depends_[static_cast<size_t>(id)] = true;
      }
    }
  }

  void seed(int output, Value cotangent) {
    require(output < size_, "differentiate: a seed of a node that is not of the forward");
    contribute(output, cotangent);
  }

  void run() {
    for (int id = size_ - 1; id >= 0; --id) {
      if (!depends(id)) continue;
      if (graph_.node(id).op == Op::opaque) {
        call(id);
        continue;
      }
      const Value g = cotangent(id);
      if (g.graph != nullptr) propagate(id, g);
    }
  }

  // The sum of what has been contributed; without a graph if nothing was.
  Value cotangent(int id) {
    std::vector<Value> parts = parts_[id];
    auto pairs = pairs_.find(id);
    if (pairs != pairs_.end()) {
      for (auto& [group, members] : pairs->second) {
        Value a = members[0];
        Value b = members[1];
        if (a.graph == nullptr) a = zeros_like(b);
        if (b.graph == nullptr) b = zeros_like(a);
        parts.push_back(merge_pairs(a, b, group));
      }
    }
    auto slices = slices_.find(id);
    if (slices != slices_.end()) parts.push_back(join_slices(id, slices->second));
    Value sum;
    for (const Value& part : parts) sum = sum.graph == nullptr ? part : add(sum, part);
    return sum;
  }

  Value full_cotangent(int id) {
    const Value g = cotangent(id);
    return g.graph == nullptr ? g : broadcast_to(g, graph_.node(id).shape);
  }

 private:
  bool depends(int id) const { return depends_[static_cast<size_t>(id)]; }
  Value value(int id) { return graph_.value(id); }

  void contribute(int id, Value g) {
    if (g.graph != nullptr && depends(id)) parts_[id].push_back(g);
  }

  // g, of the shape `from` (or one that broadcasts to it), summed to the shape of `to`.
  Value reduce(Value g, const Shape& from, const Shape& to) {
    auto count = [this](const Dim& dim) { return recip(graph_.reciprocal_dim(dim)); };
    if (to.cols.is(1) && !from.cols.is(1))
      g = g.shape().cols.is(1) ? mul(g, count(from.cols)) : row_sum(g);
    if (to.rows.is(1) && !from.rows.is(1))
      g = g.shape().rows.is(1) ? mul(g, count(from.rows)) : col_sum(g);
    return g;
  }

  void propagate(int id, Value g) {
    const Node& n = graph_.node(id);
    switch (n.op) {
      case Op::elementwise: return through_elementwise(id, n, g);
      case Op::matmul: return through_matmul(n, broadcast_to(g, n.shape));
      case Op::row_sum:
      case Op::col_sum: return contribute(n.operands[0], g);
      case Op::row_reduce:
      case Op::col_reduce: return through_reduction(id, n, g);
      case Op::select_column: {
        const Value columns = graph_.column_index(value(n.operands[0]).shape().cols);
        return contribute(n.operands[0], mul(equal(columns, value(n.operands[1])), g));
      }
      case Op::split_pair:
        if (depends(n.operands[0])) {
          Value& member = pairs_[n.operands[0]][n.dim][static_cast<size_t>(n.which)];
          const Value full = broadcast_to(g, n.shape);
          member = member.graph == nullptr ? full : add(member, full);
        }
        return;
      case Op::merge_pairs:
        g = broadcast_to(g, n.shape);
        contribute(n.operands[0], split_pair(g, n.dim, 0));
        return contribute(n.operands[1], split_pair(g, n.dim, 1));
      case Op::slice_columns:
        if (depends(n.operands[0]))
          slices_[n.operands[0]].push_back({n.dim, broadcast_to(g, n.shape)});
        return;
      case Op::concat_columns: return through_concat(n, broadcast_to(g, n.shape));
      case Op::repeat_columns: return through_repeat(n, broadcast_to(g, n.shape));
      case Op::group_sum:
        return contribute(n.operands[0], group_repeat(broadcast_to(g, n.shape), n.dim));
      case Op::group_repeat:
        return contribute(n.operands[0], group_sum(broadcast_to(g, n.shape), n.dim));
      case Op::transpose: return contribute(n.operands[0], transpose(g));
      case Op::result: results_[n.operands[0]][n.which] = broadcast_to(g, n.shape); return;
      case Op::input: return;
      case Op::gather_rows: return through_gather(n, broadcast_to(g, n.shape));
      default: return;
    }
  }

  void through_elementwise(int id, const Node& n, Value g) {
    std::vector<Value> x;
    for (int operand : n.operands) x.push_back(value(operand));
    const bool square = n.fn == Elementwise::mul && x[0] == x[1];
    if (square) return contribute(x[0].id, mul(mul(g, x[0]), graph_.constant(2)));
    for (size_t i = 0; i < x.size(); ++i) {
      if (!depends(x[i].id)) continue;
      const bool scale =
          n.fn == Elementwise::mul && x[i].shape() != n.shape && is_positive(graph_, x[i].id);
      if (scale) {
        contribute(x[i].id, mul(reduce(mul(g, value(id)), n.shape, x[i].shape()), recip(x[i])));
        continue;
      }
      const std::string_view derivative = info(n.fn).derivatives[i];
      if (derivative == "0") continue;
      const Value part = build_expression(derivative, {.operands = x, .y = value(id), .g = g});
      contribute(x[i].id, reduce(part, n.shape, x[i].shape()));
    }
  }

  void through_reduction(int id, const Node& n, Value g) {
    if (!depends(n.operands[0])) return;
    const Value x = value(n.operands[0]);
    const PartialInfo& kind = info(n.reduction);
    const bool rows = n.op == Op::row_reduce;
    const auto sum = [rows](Value v) { return rows ? row_sum(v) : col_sum(v); };
    ExpressionNames names{.operands = {x}, .y = value(id), .g = g};
    if (kind.needs_count) {
      const Value count = graph_.reciprocal_dim(rows ? x.shape().cols : x.shape().rows);
      names.operands.push_back(mul(sum(x), count));
    } else if (kind.second) {
      names.operands.push_back(rows ? row_reduce(x, *kind.second) : col_reduce(x, *kind.second));
    }
    if (kind.picks) {  // plan/partition/materialise.h says of which bits they are told
      const Value picked = equal(build_expression(kind.of_one, names), names.y);
      // A largest value that is NaN is equal to none.
      names.g = select(picked, mul(g, recip(maximum(sum(picked), 1))), 0);
    }
    contribute(x.id, build_expression(kind.derivative, names));
  }

  // C = op(A)·op(B): d op(A) = G·op(B)ᵀ, d op(B) = op(A)ᵀ·G, transposed where the operand is.
  void through_matmul(const Node& n, Value g) {
    for (size_t s = 0; s < n.transposes.size(); ++s) {
      const Value a = value(n.operands[2 * s]);
      const Value b = value(n.operands[2 * s + 1]);
      const Transposes t = n.transposes[s];
      if (depends(a.id)) {
        contribute(a.id, t.a ? matmul({{b, g, {t.b, true}}}) : matmul({{g, b, {false, !t.b}}}));
      }
      if (depends(b.id)) {
        contribute(b.id, t.b ? matmul({{g, a, {true, t.a}}}) : matmul({{a, g, {!t.a, false}}}));
      }
    }
  }

  void through_concat(const Node& n, Value g) {
    Dim offset = 0;
    for (int operand : n.operands) {
      const Dim cols = value(operand).shape().cols;
      contribute(operand, slice_columns(g, offset, cols));
      offset = offset + cols;
    }
  }

  void through_repeat(const Node& n, Value g) {
    const Dim cols = value(n.operands[0]).shape().cols;
    if (cols.is(1)) return contribute(n.operands[0], row_sum(g));
    if (n.repeat.is_constant()) {
      for (int64_t i = 0; i < n.repeat.constant(); ++i)
        contribute(n.operands[0], slice_columns(g, i * cols, cols));
      return;
    }
    // Of a number of copies that has no number yet: each column gets the sum of those that repeat
    // it, which are picked by their index.
    const Value own = graph_.column_index(cols);
    const Value copied = repeat_columns(own, n.repeat);
    if (value(n.operands[0]).shape().rows.is(1)) {
      const Value picked = select(equal(transpose(own), copied), g, 0);
      return contribute(n.operands[0], transpose(row_sum(picked)));
    }
    contribute(n.operands[0], matmul({{g, equal(transpose(copied), own), {}}}));
  }

  // Rows are scattered where an input says; by what is computed they are picked with a product.
  void through_gather(const Node& n, Value g) {
    const Value table = value(n.operands[0]);
    const Value index = value(n.operands[1]);
    const Node& given = graph_.node(index.id);
    if (given.op == Op::input && given.dtype == DType::i32) {
      const Dim rows = table.shape().rows;
      return contribute(table.id,
                        opaque_call("embedding_backward", {g, index}, {}, {{"rows", rows}})[0]);
    }
    const Value picked = equal(graph_.column_index(table.shape().rows), index);
    contribute(table.id, matmul({{picked, g, {true, false}}}));
  }

  void call(int id) {
    const Node& n = graph_.node(id);
    auto found = results_.find(id);
    if (found == results_.end()) return;
    const Operation& operation = *n.operation;
    require(operation.adjoint != nullptr,
            "the operation \"" + n.name + "\" has no adjoint, and a gradient is wanted through it");
    std::vector<Value> operands;
    std::vector<Value> results;
    std::vector<Value> cotangents(n.results.size());
    for (int operand : n.operands) operands.push_back(value(operand));
    for (size_t i = 0; i < n.results.size(); ++i) {
      Node result{
          .op = Op::result, .shape = n.results[i], .operands = {id}, .which = static_cast<int>(i)};
      results.push_back(value(graph_.intern(std::move(result))));
    }
    for (const auto& [which, g] : found->second) cotangents[static_cast<size_t>(which)] = g;
    const std::vector<Value> gradients = operation.adjoint(
        checked_settings(operation, n.attributes, n.sizes), operands, results, cotangents);
    require(gradients.size() == operands.size(),
            "the adjoint of \"" + n.name + "\" gives " + std::to_string(gradients.size()) +
                " gradients for " + std::to_string(operands.size()) + " operands");
    for (size_t i = 0; i < gradients.size(); ++i) {
      const Value& g = gradients[i];
      require(g.graph == nullptr || g.shape() == operands[i].shape(),
              "the adjoint of \"" + n.name + "\" gives operand " + std::to_string(i) +
                  " of shape " + operands[i].shape().text() + " a gradient of shape " +
                  (g.graph == nullptr ? "" : g.shape().text()));
      contribute(n.operands[i], g);
    }
  }

  // Slices' gradients side by side, zeros where no slice reads. Slices that overlap are added.
  Value join_slices(int id, std::vector<std::pair<Dim, Value>> slices) {
    const Shape shape = graph_.node(id).shape;
    std::stable_sort(slices.begin(), slices.end(),
                     [](const auto& x, const auto& y) { return x.first < y.first; });
    for (size_t i = 1; i < slices.size();) {  // equal slices are summed
      const bool same = slices[i].first == slices[i - 1].first &&
                        slices[i].second.shape() == slices[i - 1].second.shape();
      if (same) {
        slices[i - 1].second = add(slices[i - 1].second, slices[i].second);
        slices.erase(slices.begin() + static_cast<std::ptrdiff_t>(i));
      } else {
        ++i;
      }
    }
    std::vector<Value> parts;
    Dim end = 0;
    Value zero_source;
    std::vector<std::pair<Dim, Value>> overlapping;
    for (const auto& [offset, g] : slices) {
      if (offset < end) {
        overlapping.push_back({offset, g});
        continue;
      }
      if (end < offset) parts.push_back(zeros(shape.rows, offset - end, g));
      parts.push_back(g);
      end = offset + g.shape().cols;
      zero_source = g;
    }
    if (end != shape.cols) parts.push_back(zeros(shape.rows, shape.cols - end, zero_source));
    Value sum = concat_columns(parts);
    if (!overlapping.empty()) sum = add(sum, join_slices(id, overlapping));
    return sum;
  }

  Value zeros(const Dim& rows, const Dim& cols, Value source) {
    const Value row =
        broadcast_to(mul(source.graph->ones(cols), source.graph->constant(0)), {rows, cols});
    return row;
  }

  Graph& graph_;
  int size_;
  std::vector<bool> depends_;
  std::map<int, std::vector<Value>> parts_;
  std::map<int, std::map<Dim, std::array<Value, 2>>> pairs_;
  std::map<int, std::vector<std::pair<Dim, Value>>> slices_;
  std::map<int, std::map<int, Value>> results_;
};

}  // namespace

std::vector<Value> differentiate(Graph& graph, const std::vector<Seed>& seeds,
                                 const std::vector<int>& wanted) {
  Reverse reverse(graph, wanted);
  for (const Seed& s : seeds) reverse.seed(s.output, s.cotangent);
  reverse.run();
  std::vector<Value> gradients;
  for (int id : wanted) gradients.push_back(reverse.full_cotangent(id));
  return gradients;
}

}  // namespace coda
