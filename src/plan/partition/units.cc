// SPDX-License-Identifier: Apache-2.0
// Groups GEMMs that share operands, then orders the units topologically.
#include "plan/partition/units.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "coda/error.h"

namespace coda {
namespace {

// The operands that two GEMMs must share to be joined: all left or all right ones, with their
// transposes.
std::string operands_key(const Node& n, size_t side) {
  std::string key;
  for (size_t s = 0; s < n.transposes.size(); ++s) {
    const Transposes t = n.transposes[s];
    key += std::to_string(n.operands[2 * s + side]) + (t.a ? "t" : "n") + (t.b ? "t " : "n ");
  }
  return key;
}

// Simulates the execution: a unit is ready when all operands of its nodes are done; values between
// units are done as soon as possible.
class Progress {
 public:
  Progress(const Graph& graph, const Readers& readers, const std::vector<Unit>& units,
           const std::vector<bool>& live)
      : readers_(readers),
        units_(units),
        unit_of_(live.size(), -1),
        missing_(live.size(), 0),
        missing_of_unit_(units.size(), 0) {
    for (size_t u = 0; u < units.size(); ++u) {
      for (int id : units[u].nodes) unit_of_[static_cast<size_t>(id)] = static_cast<int>(u);
    }
    std::vector<int> given;
    for (int id = 0; id < graph.size(); ++id) {
      if (!live[static_cast<size_t>(id)]) continue;
      const auto count = static_cast<int>(graph.node(id).operands.size());
      (is_of_unit(id) ? missing_of_unit(id) : missing_[static_cast<size_t>(id)]) += count;
      if (count == 0 && !is_of_unit(id)) given.push_back(id);
    }
    for (size_t u = 0; u < units.size(); ++u) {
      if (missing_of_unit_[u] == 0) became_ready_.push_back(static_cast<int>(u));
    }
    spread(std::move(given));
  }

  bool is_ready(int unit) const { return missing_of_unit_[static_cast<size_t>(unit)] == 0; }
  void finish(int unit) { spread(units_[static_cast<size_t>(unit)].nodes); }
  // The units that became ready since the last call.
  std::vector<int> take_ready() { return std::exchange(became_ready_, {}); }

 private:
  bool is_of_unit(int id) const { return unit_of_[static_cast<size_t>(id)] >= 0; }
  int& missing_of_unit(int id) {
    return missing_of_unit_[static_cast<size_t>(unit_of_[static_cast<size_t>(id)])];
  }

  void spread(std::vector<int> done) {
    while (!done.empty()) {
      const int id = done.back();
      done.pop_back();
      for (int reader : readers_.of(id)) {
        if (is_of_unit(reader)) {
          if (--missing_of_unit(reader) == 0)
            became_ready_.push_back(unit_of_[static_cast<size_t>(reader)]);
        } else if (--missing_[static_cast<size_t>(reader)] == 0) {
          done.push_back(reader);
        }
      }
    }
  }

  const Readers& readers_;
  const std::vector<Unit>& units_;
  std::vector<int> unit_of_;
  std::vector<int> missing_;          // per node: number of operands that are not done
  std::vector<int> missing_of_unit_;  // per unit: the same over all its nodes
  std::vector<int> became_ready_;
};

class Ordering {
 public:
  Ordering(const JointGraph& joint, const std::vector<bool>& live, const Readers& readers,
           bool join)
      : joint_(joint), graph_(*joint.graph), live_(live), readers_(readers) {
    collect();
    sorted_ = sort();
    if (join) {
      join_by(0);
      join_by(1);
    }
  }

  UnitOrder run() {
    UnitOrder order;
    order.unit_of.assign(static_cast<size_t>(graph_.size()), -1);
    std::vector<int> forward;
    std::vector<int> main;
    std::vector<int> weights;
    for (int u : sorted_) {
      const Unit& unit = units_[static_cast<size_t>(u)];
      if (unit.runs_again) continue;
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
      unit.runs_again = unit.is_backward && n.which != 0;
      const std::vector<int>& early = joint_.row_blocks.early;
      unit.is_gradient = (unit.is_backward && !unit.runs_again) ||
                         std::find(early.begin(), early.end(), id) != early.end();
      unit.contracts_rows = unit.is_gemm && unit.is_gradient && n.transposes[0].a;
      units_.push_back(unit);
    }
  }

  Progress progress() const { return {graph_, readers_, units_, live_}; }

  // Joins all GEMMs with equal operands on one side. If that makes a cycle (one GEMM of a group
  // depends on another), joins them one by one and leaves out those that cause it.
  void join_by(size_t side) {
    std::map<std::string, size_t> first;
    std::vector<Unit> joined;
    for (const Unit& unit : units_) {
      auto [entry, is_new] = first.try_emplace(key_of(unit, side), joined.size());
      if (is_new || !unit.is_gemm) {
        joined.push_back(unit);
      } else {
        append_nodes(joined[entry->second], unit);
      }
    }
    if (joined.size() != units_.size() && !replace_units(std::move(joined))) join_one_by_one(side);
  }

  void join_one_by_one(size_t side) {
    std::map<std::string, size_t> first;
    for (size_t u = 0; u < units_.size(); ++u) {
      if (!units_[u].is_gemm) continue;
      auto [entry, is_new] = first.try_emplace(key_of(units_[u], side), u);
      if (is_new) continue;
      std::vector<Unit> joined = units_;
      append_nodes(joined[entry->second], joined[u]);
      joined.erase(joined.begin() + static_cast<std::ptrdiff_t>(u));
      if (replace_units(std::move(joined))) --u;
    }
  }

  // Returns false if the new units have a cycle.
  bool replace_units(std::vector<Unit> units) {
    std::swap(units_, units);
    std::vector<int> sorted = sort();
    if (sorted.empty()) {
      std::swap(units_, units);
      return false;
    }
    sorted_ = std::move(sorted);
    return true;
  }

  std::string key_of(const Unit& unit, size_t side) const {
    const std::string phase = unit.runs_again ? "r" : unit.is_backward ? "b" : "f";
    const std::string kind = unit.is_gemm ? "g" : "o" + std::to_string(unit.nodes[0]) + " ";
    return phase + kind + operands_key(graph_.node(unit.nodes[0]), side);
  }

  static void append_nodes(Unit& host, const Unit& unit) {
    host.nodes.insert(host.nodes.end(), unit.nodes.begin(), unit.nodes.end());
    std::sort(host.nodes.begin(), host.nodes.end());
  }

  // In topological order, smallest first node first; empty if there is a cycle.
  std::vector<int> sort() const {
    auto later = [this](int a, int b) {
      return units_[static_cast<size_t>(a)].nodes[0] < units_[static_cast<size_t>(b)].nodes[0];
    };
    Progress done = progress();
    std::set<int, decltype(later)> ready(later);
    std::vector<int> sorted;
    for (;;) {
      for (int u : done.take_ready()) ready.insert(u);
      if (ready.empty()) break;
      sorted.push_back(*ready.begin());
      ready.erase(ready.begin());
      done.finish(sorted.back());
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

  // A weight's gradient follows the first main unit after its operands. One unit earlier, and the
  // epilogue that could compute its operand (a normalised input, a recomputed activation) would
  // come too late; at the end, every gradient of an activation would stay alive until then.
  void append_backward(UnitOrder& order, const std::vector<int>& main,
                       std::vector<int> weights) const {
    Progress done = progress();
    for (size_t u = 0; u < units_.size(); ++u) {
      if (!units_[u].is_backward) done.finish(static_cast<int>(u));
    }
    std::vector<int> unit_of(static_cast<size_t>(graph_.size()), -1);
    for (size_t u = 0; u < units_.size(); ++u)
      for (int id : units_[u].nodes) unit_of[static_cast<size_t>(id)] = static_cast<int>(u);
    std::vector<bool> ran(units_.size(), false);
    // A recomputed unit runs directly before the first unit that needs it.
    const std::function<void(int)> recompute_for = [&](int u) {
      std::vector<int> pending = units_[static_cast<size_t>(u)].nodes;
      std::set<int> seen;
      while (!pending.empty()) {
        const int id = pending.back();
        pending.pop_back();
        for (int operand : graph_.node(id).operands) {
          if (joint_.forward[static_cast<size_t>(operand)] || !seen.insert(operand).second)
            continue;
          const int of = unit_of[static_cast<size_t>(operand)];
          if (of < 0) {
            pending.push_back(operand);
            continue;
          }
          if (!units_[static_cast<size_t>(of)].runs_again || ran[static_cast<size_t>(of)]) continue;
          ran[static_cast<size_t>(of)] = true;
          recompute_for(of);
          append(order, of);
          done.finish(of);
        }
      }
    };
    auto flush = [&](const std::vector<int>& candidates) {
      for (int u : candidates) {
        append(order, u);
        done.finish(u);
        std::erase(weights, u);
      }
    };
    for (size_t i = 0; i < main.size(); ++i) {
      recompute_for(main[i]);
      // A main unit that needs a weight's gradient (a scatter into a tied embedding's) moves it
      // forward.
      for (bool again = true; again && !done.is_ready(main[i]);) {
        std::vector<int> pulled;
        for (int u : weights) {
          if (done.is_ready(u)) pulled.push_back(u);
        }
        again = !pulled.empty();
        flush(pulled);
      }
      std::vector<int> waiting;
      for (int u : weights) {
        if (done.is_ready(u)) waiting.push_back(u);
      }
      append(order, main[i]);
      done.finish(main[i]);
      flush(waiting);
    }
    for (int u : weights) recompute_for(u);
    while (!weights.empty()) {
      const size_t before = weights.size();
      std::vector<int> rest;
      for (int u : weights) {
        if (done.is_ready(u)) rest.push_back(u);
      }
      flush(rest);
      invariant(weights.size() < before, "weight gradients cannot be ordered");
    }
  }

  const JointGraph& joint_;
  const Graph& graph_;
  const std::vector<bool>& live_;
  const Readers& readers_;
  std::vector<Unit> units_;
  std::vector<int> sorted_;  // in a possible order of execution
};

}  // namespace

UnitOrder order_units(const JointGraph& joint, const std::vector<bool>& live,
                      const Readers& readers, bool join) {
  return Ordering(joint, live, readers, join).run();
}

}  // namespace coda
