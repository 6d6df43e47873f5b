// SPDX-License-Identifier: Apache-2.0
// Computes when values are known. The home of a tensor is unit k if its latest operand is a tile of
// k, k is a GEMM of the same phase, every vector that it uses is finalized before k runs, and k's
// tile holds the whole tensor.
#include <algorithm>

#include "coda/error.h"
#include "plan/partition/partition.h"

namespace coda {

bool is_pair(const Node& node) {
  const bool reduces = node.op == Op::row_reduce || node.op == Op::col_reduce;
  return reduces && info(node.reduction).value == kBothResults;
}

bool is_source(const Graph& graph, int id) {
  const Node& n = graph.node(id);
  switch (n.op) {
    case Op::input:
    case Op::result: return true;
    case Op::slice_columns:
    case Op::repeat_columns:
    case Op::gather_rows: return is_source(graph, n.operands[0]);
    default: return false;
  }
}

int source_base(const Graph& graph, int id) {
  while (graph.node(id).op != Op::input && graph.node(id).op != Op::result)
    id = graph.node(id).operands[0];
  return id;
}

ReadyTimes::ReadyTimes(const JointGraph& joint, const UnitOrder& order, bool fuse)
    : joint_(joint), graph_(*joint.graph), order_(order), fuse_(fuse) {}

void ReadyTimes::compute(const std::vector<bool>& live, const std::map<int, PlanPoint>& reduced) {
  times_.assign(static_cast<size_t>(graph_.size()), {});
  for (int id = 0; id < graph_.size(); ++id) {
    if (live[static_cast<size_t>(id)]) times_[static_cast<size_t>(id)] = time_of(id, reduced);
  }
}

// In ascending order of ids: operands have smaller ids, so each value is visited once.
void ReadyTimes::update(std::set<int> moved, const Readers& readers,
                        const std::map<int, PlanPoint>& reduced) {
  while (!moved.empty()) {
    const int id = moved.extract(moved.begin()).value();
    Time& time = times_[static_cast<size_t>(id)];
    const Time now = time_of(id, reduced);
    if (now == time) continue;
    time = now;
    moved.insert(readers.of(id).begin(), readers.of(id).end());
  }
}

ReadyTimes::Time ReadyTimes::time_of(int id, const std::map<int, PlanPoint>& reduced) {
  const Node& n = graph_.node(id);
  const bool backward = !joint_.forward[static_cast<size_t>(id)];
  const PlanPoint start = backward ? PlanPoint{order_.boundary, 1} : PlanPoint{-1, 1};
  const int unit = order_.unit_of[static_cast<size_t>(id)];
  if (unit >= 0) return {{unit, 0}, graph_.node(id).op == Op::matmul};
  if (n.op == Op::result) return {{order_.unit_of[static_cast<size_t>(n.operands[0])], 1}, false};
  if (n.op == Op::input) return {{-1, 1}, false};
  if (n.shape.is_tensor()) return tensor_time(id, n);

  // A vector is known after the programs of all its reductions.
  auto placed = reduced.find(id);
  if (placed != reduced.end()) return {placed->second.next(), false};
  Time latest{{-1, 0}, false};
  for (int operand : n.operands) {
    const bool of_tensor = graph_.node(operand).shape.is_tensor();
    PlanPoint known = of(operand).at;
    if (of_tensor)
      known = std::max(known, start)
                  .next();  // made by the program that holds the tensor, at the earliest
    latest.at = std::max(latest.at, known);
  }
  return latest;
}

ReadyTimes::Time ReadyTimes::tensor_time(int id, const Node& n) {
  const bool backward = !joint_.forward[static_cast<size_t>(id)];
  int home = -1;
  for (int operand : n.operands) {
    const bool same_phase = joint_.forward[static_cast<size_t>(operand)] != backward;
    if (of(operand).home && same_phase) home = std::max(home, of(operand).at.slot);
  }
  const bool view = n.op == Op::slice_columns || n.op == Op::concat_columns ||
                    n.op == Op::repeat_columns || n.op == Op::gather_rows;
  bool local = home >= 0 && !view && fuse_;
  for (int operand : n.operands) {
    if (!local) break;
    const Time& t = of(operand);
    if (t.home && t.at.slot == home) continue;
    // Known before the unit runs: a vector at its finalizer, or a tensor that is in memory or can
    // be computed from memory.
    if (t.at > PlanPoint{home, 0}) local = false;
  }

  if (local) return {{home, 0}, true};

  Time time{backward ? PlanPoint{order_.boundary, 1} : PlanPoint{-1, 1}, false};
  for (int operand : n.operands) {
    const Time& t = of(operand);
    time.at = std::max(time.at, t.home ? t.at.next() : t.at);
  }
  return time;
}

}  // namespace coda
