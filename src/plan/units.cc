// SPDX-License-Identifier: Apache-2.0
#include "plan/units.h"

#include <algorithm>
#include <map>
#include <set>

#include "coda/error.h"

namespace coda {
namespace {

// Which operands two products must share to be joined: all left ones, or all right ones, with their
// transposes.
std::string operands_key(const Node& n, size_t side) {
  std::string key;
  for (size_t s = 0; s < n.transposes.size(); ++s) {
    const Transposes t = n.transposes[s];
    key += std::to_string(n.operands[2 * s + side]) + (t.a ? "t" : "n") + (t.b ? "t " : "n ");
  }
  return key;
}

class Ordering {
 public:
  Ordering(const JointGraph& joint, const std::vector<bool>& live, bool join)
      : joint_(joint), graph_(*joint.graph), live_(live) {
    collect();
    if (join) {
      join_by(0);
      join_by(1);
    }
  }

  UnitOrder run() {
    UnitOrder order;
    order.unit_of.assign(static_cast<size_t>(graph_.size()), -1);
    const std::vector<int> sorted = sort();
    std::vector<int> forward;
    std::vector<int> main;
    std::vector<int> weights;
    for (int u : sorted) {
      const Unit& unit = units_[static_cast<size_t>(u)];
      (!unit.is_backward ? forward : unit.contracts_rows ? weights : main).push_back(u);
    }
    for (int u : forward) append(order, u);
    order.boundary = static_cast<int>(order.units.size());
    order.units.emplace_back();
    order.units.back().is_backward = true;
    append_backward(order, main, weights);
    return order;
  }

 private:
  void collect() {
    for (int id = 0; id < graph_.size(); ++id) {
      if (!live_[static_cast<size_t>(id)]) continue;
      const Node& n = graph_.node(id);
      if (n.op != Op::matmul && n.op != Op::opaque) continue;
      Unit unit;
      unit.nodes = {id};
      unit.is_gemm = n.op == Op::matmul;
      unit.is_backward = !joint_.forward[static_cast<size_t>(id)];
      const std::vector<int>& early = joint_.blocks.early;
      unit.is_gradient =
          unit.is_backward || std::find(early.begin(), early.end(), id) != early.end();
      unit.contracts_rows = unit.is_gemm && unit.is_gradient && n.transposes[0].a;
      units_.push_back(unit);
    }
  }

  // Units that unit u needs, directly: through any chain of other nodes.
  std::vector<std::set<int>> dependencies() const {
    std::vector<int> owner(static_cast<size_t>(graph_.size()), -1);
    for (size_t u = 0; u < units_.size(); ++u) {
      for (int id : units_[u].nodes) owner[static_cast<size_t>(id)] = static_cast<int>(u);
    }
    std::vector<std::set<int>> below(
        static_cast<size_t>(graph_.size()));  // of a node: the nearest units under it
    std::vector<std::set<int>> needs(units_.size());
    for (int id = 0; id < graph_.size(); ++id) {
      if (!live_[static_cast<size_t>(id)]) continue;
      std::set<int>& mine = below[static_cast<size_t>(id)];
      for (int operand : graph_.node(id).operands) {
        const int unit = owner[static_cast<size_t>(operand)];
        if (unit >= 0) {
          mine.insert(unit);
        } else {
          mine.insert(below[static_cast<size_t>(operand)].begin(),
                      below[static_cast<size_t>(operand)].end());
        }
      }
      const int own = owner[static_cast<size_t>(id)];
      if (own >= 0) needs[static_cast<size_t>(own)].insert(mine.begin(), mine.end());
    }
    return needs;
  }

  // All products with equal operands on one side at once; where that makes a cycle (one of a group
  // depends on another), one by one, leaving out those that do.
  void join_by(size_t side) {
    const std::vector<Unit> before = units_;
    std::map<std::string, size_t> first;
    std::vector<Unit> joined;
    for (const Unit& unit : before) {
      auto [entry, is_new] = first.try_emplace(key_of(unit, side), joined.size());
      if (is_new || !unit.is_gemm) {
        joined.push_back(unit);
      } else {
        append_nodes(joined[entry->second], unit);
      }
    }
    units_ = joined;
    if (!sort().empty()) return;
    units_ = before;
    join_one_by_one(side);
  }

  void join_one_by_one(size_t side) {
    std::map<std::string, size_t> first;
    for (size_t u = 0; u < units_.size(); ++u) {
      if (!units_[u].is_gemm) continue;
      auto [entry, is_new] = first.try_emplace(key_of(units_[u], side), u);
      if (is_new) continue;
      const std::vector<Unit> before = units_;
      append_nodes(units_[entry->second], before[u]);
      units_.erase(units_.begin() + static_cast<std::ptrdiff_t>(u));
      if (sort().empty()) {
        units_ = before;
      } else {
        --u;
      }
    }
  }

  std::string key_of(const Unit& unit, size_t side) const {
    const std::string phase = unit.is_backward ? "b" : "f";
    const std::string kind = unit.is_gemm ? "g" : "o" + std::to_string(unit.nodes[0]) + " ";
    return phase + kind + operands_key(graph_.node(unit.nodes[0]), side);
  }

  static void append_nodes(Unit& host, const Unit& unit) {
    host.nodes.insert(host.nodes.end(), unit.nodes.begin(), unit.nodes.end());
    std::sort(host.nodes.begin(), host.nodes.end());
  }

  // Topological, smallest first node first; empty if there is a cycle.
  std::vector<int> sort() const {
    const std::vector<std::set<int>> needs = dependencies();
    std::vector<std::set<int>> readers(units_.size());
    std::vector<size_t> missing(units_.size(), 0);
    for (size_t u = 0; u < units_.size(); ++u) {
      if (needs[u].contains(static_cast<int>(u))) return {};
      missing[u] = needs[u].size();
      for (int need : needs[u]) readers[static_cast<size_t>(need)].insert(static_cast<int>(u));
    }
    auto later = [this](int a, int b) {
      return units_[static_cast<size_t>(a)].nodes[0] < units_[static_cast<size_t>(b)].nodes[0];
    };
    std::set<int, decltype(later)> ready(later);
    for (size_t u = 0; u < units_.size(); ++u) {
      if (missing[u] == 0) ready.insert(static_cast<int>(u));
    }
    std::vector<int> sorted;
    while (!ready.empty()) {
      const int u = *ready.begin();
      ready.erase(ready.begin());
      sorted.push_back(u);
      for (int reader : readers[static_cast<size_t>(u)]) {
        if (--missing[static_cast<size_t>(reader)] == 0) ready.insert(reader);
      }
    }
    if (sorted.size() != units_.size()) sorted.clear();
    return sorted;
  }

  void append(UnitOrder& order, int u) const {
    const Unit& unit = units_[static_cast<size_t>(u)];
    for (int id : unit.nodes)
      order.unit_of[static_cast<size_t>(id)] = static_cast<int>(order.units.size());
    order.units.push_back(unit);
  }

  // A weight's gradient goes right after the first main unit behind its operands: one earlier, and
  // the epilogue that could make its operand (a normalised input, a recomputed activation) would
  // come too late; all at the end, and every gradient of an activation would live to the end.
  void append_backward(UnitOrder& order, const std::vector<int>& main,
                       std::vector<int> weights) const {
    const std::vector<std::set<int>> needs = dependencies();
    std::set<int> done;  // units of the forward count as done
    for (size_t u = 0; u < units_.size(); ++u) {
      if (!units_[u].is_backward) done.insert(static_cast<int>(u));
    }
    auto ready = [&](int u) {
      const auto& mine = needs[static_cast<size_t>(u)];
      return std::all_of(mine.begin(), mine.end(), [&](int need) { return done.contains(need); });
    };
    auto flush = [&](const std::vector<int>& candidates) {
      for (int u : candidates) {
        append(order, u);
        done.insert(u);
        std::erase(weights, u);
      }
    };
    for (size_t i = 0; i < main.size(); ++i) {
      // A main unit that itself needs a weight's gradient (a scatter into a tied embedding's) pulls
      // it forward.
      for (bool again = true; again && !ready(main[i]);) {
        std::vector<int> pulled;
        for (int u : weights) {
          if (ready(u)) pulled.push_back(u);
        }
        again = !pulled.empty();
        flush(pulled);
      }
      std::vector<int> waiting;
      for (int u : weights) {
        if (ready(u)) waiting.push_back(u);
      }
      append(order, main[i]);
      done.insert(main[i]);
      flush(waiting);
    }
    while (!weights.empty()) {
      const size_t before = weights.size();
      std::vector<int> rest;
      for (int u : weights) {
        if (ready(u)) rest.push_back(u);
      }
      flush(rest);
      invariant(weights.size() < before, "weight gradients cannot be ordered");
    }
  }

  const JointGraph& joint_;
  const Graph& graph_;
  const std::vector<bool>& live_;
  std::vector<Unit> units_;
};

}  // namespace

UnitOrder order_units(const JointGraph& joint, const std::vector<bool>& live, bool join) {
  return Ordering(joint, live, join).run();
}

}  // namespace coda
