// SPDX-License-Identifier: Apache-2.0
// Collects roots in one pass over the live nodes.
#include "plan/partition/roots.h"

#include "coda/error.h"
#include "plan/partition/partition.h"

namespace coda {
namespace {

bool is_reduction(Op op) {
  return op == Op::row_sum || op == Op::col_sum || op == Op::row_reduce || op == Op::col_reduce ||
         op == Op::select_column;
}

class RootFinder {
 public:
  RootFinder(const JointGraph& joint, const std::vector<bool>& live, bool fuse)
      : joint_(joint), graph_(*joint.graph), live_(live), fuse_(fuse) {}

  Roots run() {
    for (int id = 0; id < graph_.size(); ++id) {
      if (!live_[static_cast<size_t>(id)]) continue;
      const Node& n = graph_.node(id);
      if (n.op == Op::matmul || n.op == Op::opaque) {
        for (int operand : n.operands) {
          if (is_tensor(operand)) require_stored(operand, !is_forward(id));
        }
      }
      if (!is_reduction(n.op) || !is_tensor(n.operands[0])) continue;
      roots_.reductions.insert(id);
      // Without epilogues, the reduction of a GEMM's result reads it from memory.
      const bool of_product = graph_.node(n.operands[0]).op == Op::matmul;
      if (!fuse_ && of_product) require_stored(n.operands[0], !is_forward(id));
    }
    for (int id : joint_.outputs) {
      if (is_tensor(id)) require_stored(id, false);
    }
    for (int id : joint_.gradients) {
      if (id >= 0 && is_tensor(id)) {
        // A gradient that is a source must still be written to the caller's tensor, by a copy.
        require(!is_source(graph_, id) || graph_.node(source_base(graph_, id)).op == Op::result,
                "a gradient equals an input of the graph; copy that input instead");
        require_stored(id, true);
      }
    }
    return std::move(roots_);
  }

 private:
  bool is_forward(int id) const { return joint_.forward[static_cast<size_t>(id)]; }
  bool is_tensor(int id) const { return graph_.node(id).shape.is_tensor(); }

  // Requires that a tensor is stored. A concatenation is stored part by part, through views.
  void require_stored(int id, bool backward) {
    if (!is_tensor(id)) return;  // a vector among a tensor's columns: its finalizer writes it
    if (is_source(graph_, id)) {
      if (backward && is_forward(id)) roots_.forward_needs.insert(id);
      return;
    }
    const Node& n = graph_.node(id);
    if (n.op == Op::slice_columns) return require_stored(n.operands[0], backward);
    if (n.op == Op::concat_columns) {
      for (int part : n.operands) require_stored(part, backward);
      return;
    }
    if (backward && is_forward(id)) {
      roots_.forward_needs.insert(id);
      roots_.backward_operands.insert(id);
      return;
    }
    (is_forward(id) ? roots_.forward_stores : roots_.backward_stores).insert(id);
  }

  const JointGraph& joint_;
  const Graph& graph_;
  const std::vector<bool>& live_;
  bool fuse_;
  Roots roots_;
};

}  // namespace

Roots find_roots(const JointGraph& joint, const std::vector<bool>& live, bool fuse) {
  return RootFinder(joint, live, fuse).run();
}

}  // namespace coda
