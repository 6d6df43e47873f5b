// SPDX-License-Identifier: Apache-2.0
#include "ir/rebuild.h"

#include <algorithm>

#include "coda/error.h"

namespace coda {

Value rebuild(Graph& graph, const Node& like, const std::vector<Value>& x) {
  switch (like.op) {
    case Op::input: {
      const int id = graph.find_input(like.name);
      return id >= 0 ? graph.value(id) : graph.input(like.name, like.shape, like.dtype, like.kind);
    }
    case Op::constant: return graph.constant(like.number);
    case Op::reciprocal_dim: return graph.reciprocal_dim(like.dim);
    case Op::ones: return graph.ones(like.shape.cols);
    case Op::column_index: return graph.column_index(like.shape.cols);
    case Op::elementwise: return elementwise(like.fn, x);
    case Op::row_sum: return row_sum(x[0]);
    case Op::col_sum: return col_sum(x[0]);
    case Op::row_reduce: return row_reduce(x[0], like.reduction);
    case Op::col_reduce: return col_reduce(x[0], like.reduction);
    case Op::select_column: return select_column(x[0], x[1]);
    case Op::matmul: {
      std::vector<MatmulOperands> segments;
      for (size_t s = 0; s < like.transposes.size(); ++s) {
        segments.push_back({x[2 * s], x[2 * s + 1], like.transposes[s]});
      }
      const Value made = matmul(segments);
      if (like.which == 0 || graph.node(made.id).op != Op::matmul) return made;
      Node again = graph.node(made.id);  // of a recomputed layer
      again.which = like.which;
      return graph.value(graph.intern(std::move(again)));
    }
    case Op::split_pair: return split_pair(x[0], like.dim, like.which);
    case Op::merge_pairs: return merge_pairs(x[0], x[1], like.dim);
    case Op::slice_columns: return slice_columns(x[0], like.dim, like.shape.cols);
    case Op::concat_columns: return concat_columns(x);
    case Op::repeat_columns: return repeat_columns(x[0], like.repeat);
    case Op::gather_rows: return gather_rows(x[0], x[1]);
    case Op::group_sum: return group_sum(x[0], like.dim);
    case Op::group_repeat: return group_repeat(x[0], like.dim);
    case Op::transpose: return transpose(x[0]);
    case Op::opaque:
    case Op::result: {
      Node node = like;
      node.operands.clear();
      for (const Value& v : x) node.operands.push_back(v.id);
      return graph.value(graph.intern(std::move(node)));
    }
  }
  throw InternalError("rebuild: an operation is missing");
}

void clone(const Graph& from, Graph& into) {
  invariant(into.size() == 0, "clone: the target graph is not empty");
  for (int id = 0; id < from.size(); ++id) {
    const Node& node = from.node(id);
    const int copy = node.op == Op::input
                         ? into.input(node.name, node.shape, node.dtype, node.kind).id
                         : into.intern(node);
    invariant(copy == id, "clone: ids differ");
  }
}

std::vector<bool> reached_from(const Graph& graph, const std::vector<int>& roots) {
  std::vector<bool> reached(static_cast<size_t>(graph.size()), false);
  for (int root : roots) reached[static_cast<size_t>(root)] = true;
  for (int id = graph.size() - 1; id >= 0; --id) {
    if (!reached[static_cast<size_t>(id)]) continue;
    for (int operand : graph.node(id).operands) reached[static_cast<size_t>(operand)] = true;
  }
  return reached;
}

std::vector<int> newly_reached(const Graph& graph, int root, std::vector<bool>& seen) {
  seen.resize(static_cast<size_t>(graph.size()), false);
  std::vector<int> found;
  const auto visit = [&](int id) {
    if (seen[static_cast<size_t>(id)]) return;
    seen[static_cast<size_t>(id)] = true;
    found.push_back(id);
  };
  visit(root);
  for (size_t i = 0; i < found.size(); ++i) {
    for (int operand : graph.node(found[i]).operands) visit(operand);
  }
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace coda
