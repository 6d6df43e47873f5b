// SPDX-License-Identifier: Apache-2.0
// The graph as text, a line a node, for people and for tests of the passes.
#include <set>

#include "coda/graph.h"

namespace coda {
namespace {

std::string_view name_of(Op op) {
  switch (op) {
    case Op::input: return "input";
    case Op::constant: return "constant";
    case Op::reciprocal_dim: return "reciprocal_dim";
    case Op::ones: return "ones";
    case Op::column_index: return "column_index";
    case Op::elementwise: return "elementwise";
    case Op::row_sum: return "row_sum";
    case Op::col_sum: return "col_sum";
    case Op::row_logsumexp: return "row_logsumexp";
    case Op::row_centred_squares: return "row_centred_squares";
    case Op::select_column: return "select_column";
    case Op::matmul: return "matmul";
    case Op::split_pair: return "split_pair";
    case Op::merge_pairs: return "merge_pairs";
    case Op::slice_columns: return "slice_columns";
    case Op::concat_columns: return "concat_columns";
    case Op::repeat_columns: return "repeat_columns";
    case Op::gather_rows: return "gather_rows";
    case Op::group_sum: return "group_sum";
    case Op::group_repeat: return "group_repeat";
    case Op::transpose: return "transpose";
    case Op::opaque: return "opaque";
    case Op::result: return "result";
  }
  return "?";
}

std::string line_of(const Graph& graph, int id) {
  const Node& n = graph.node(id);
  std::string line = "%" + std::to_string(id) + " " + n.shape.text() + " = ";
  line += n.op == Op::elementwise ? std::string(info(n.fn).name) : std::string(name_of(n.op));
  for (size_t i = 0; i < n.operands.size(); ++i) {
    line += " %" + std::to_string(n.operands[i]);
    if (n.op == Op::matmul && (i % 2 == 0 ? n.transposes[i / 2].a : n.transposes[i / 2].b))
      line += "'";
  }
  if (n.op == Op::input || n.op == Op::opaque) line += " " + n.name;
  if (n.op == Op::constant) line += " " + std::to_string(n.number);
  if (n.op == Op::split_pair || n.op == Op::result) line += " #" + std::to_string(n.which);
  if (n.op == Op::split_pair || n.op == Op::merge_pairs) line += " group " + n.dim.text();
  if (n.op == Op::slice_columns) line += " from " + n.dim.text();
  if (n.op == Op::reciprocal_dim) line += " " + n.dim.text();
  return line + "\n";
}

}  // namespace

std::string text(const Graph& graph, const std::vector<int>& roots) {
  std::set<int> reached(roots.begin(), roots.end());
  std::vector<int> pending(roots.begin(), roots.end());
  while (!pending.empty()) {
    const int id = pending.back();
    pending.pop_back();
    for (int operand : graph.node(id).operands) {
      if (reached.insert(operand).second) pending.push_back(operand);
    }
  }
  std::string out;
  for (int id : reached) out += line_of(graph, id);
  return out;
}

}  // namespace coda
