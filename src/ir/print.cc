// SPDX-License-Identifier: Apache-2.0
// The graph as text, a line a node, for people and for tests of the passes.
#include <set>

#include "coda/graph.h"
#include "ir/op_names.h"

namespace coda {
namespace {

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
  if (n.op == Op::row_reduce || n.op == Op::col_reduce)
    line += " " + std::string(info(n.reduction).name);
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
