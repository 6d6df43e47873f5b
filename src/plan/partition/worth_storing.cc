// SPDX-License-Identifier: Apache-2.0
// Compares, for each value, the bytes that several programs load to recompute it with the bytes to
// store it.
#include "plan/partition/worth_storing.h"

#include <algorithm>
#include <set>

namespace coda {
namespace {

// The number of programs compared for one value. A constant makes the decision independent of the
// total number of programs and keeps the work linear in the depth of a model. These are programs of
// the value's own layer and the next, which load little else: for the phase's own values the first
// programs that compute it; for the forward's values the last of the backward, or those that load
// least of what is known from the start.
constexpr size_t kPrograms = 3;

class Finder {
 public:
  explicit Finder(const PhaseWork& phase)
      : phase_(phase), graph_(*phase.graph), makers_(static_cast<size_t>(graph_.size())) {}

  // First the phase's own values, as if the other phase's operands were in memory; then the others.
  // So the walk of a program ends at the residual stream of its layer, for activations and
  // gradients.
  std::vector<int> worth_storing() {
    find_makers();
    for (const bool own : {true, false}) {
      others_are_there_ = own;
      for (int id = 0; id < graph_.size(); ++id) {
        if (phase_.is_of_phase(id) != own || phase_.in_memory(id) || is_view(id)) continue;
        if (makers_[static_cast<size_t>(id)].size() >= 2 && gain(id) > 0) stored_.insert(id);
      }
    }
    return {stored_.begin(), stored_.end()};
  }

  std::vector<PlanPoint> first_makers() {
    find_makers();
    std::vector<PlanPoint> first;
    for (const std::vector<PlanPoint>& makers : makers_)
      first.push_back(makers.empty() ? PlanPoint{} : makers[0]);
    return first;
  }

 private:
  bool loads(int id, PlanPoint at) const {
    if (phase_.is_own(id, at)) return false;
    const bool is_there = others_are_there_ && !phase_.is_of_phase(id);
    return is_there || stored_.contains(id) || phase_.in_memory(id);
  }

  // Slices and concatenations have no program of their own.
  bool is_view(int id) const {
    const Op op = graph_.node(id).op;
    return op == Op::slice_columns || op == Op::concat_columns || op == Op::repeat_columns ||
           op == Op::gather_rows;
  }

  void add_maker(int id, PlanPoint at) {
    std::vector<PlanPoint>& makers = makers_[static_cast<size_t>(id)];
    const auto place = std::lower_bound(makers.begin(), makers.end(), at);
    if (place != makers.end() && *place == at) return;
    makers.insert(place, at);
    if (makers.size() <= kPrograms) return;
    const bool drops_last = phase_.is_of_phase(id) || makers.back().slot >= phase_.units;
    makers.erase(drops_last ? makers.end() - 1 : makers.begin());
  }

  // Finds the programs that currently compute each value. Users have larger ids than operands.
  void find_makers() {
    for (const auto& [at, roots] : phase_.programs) {
      for (int root : roots) add_maker(root, at);
    }
    for (int id = graph_.size() - 1; id >= 0; --id) {
      const Node& n = graph_.node(id);
      if (n.op == Op::matmul || makers_[static_cast<size_t>(id)].empty()) continue;
      for (int operand : n.operands) {
        if (!graph_.node(operand).shape.is_tensor()) continue;
        for (const PlanPoint at : makers_[static_cast<size_t>(id)]) {
          if (!loads(operand, at)) add_maker(operand, at);
        }
      }
    }
  }

  // Bytes saved if `id` is stored.
  double gain(int id) const {
    double bytes = -phase_.store_cost(id);
    const std::vector<PlanPoint>& makers = makers_[static_cast<size_t>(id)];
    // For the phase's own values, one program still computes it.
    for (size_t i = phase_.is_of_phase(id) ? 1 : 0; i < makers.size(); ++i) {
      if (phase_.is_own(id, makers[i])) continue;
      bytes += loaded(makers[i], -1) - loaded(makers[i], id);
    }
    return bytes;
  }

  // Bytes that a program loads if `stored` is also in memory.
  double loaded(PlanPoint at, int stored) const {
    double bytes = 0;
    std::set<int> seen;
    std::vector<int> pending = phase_.programs.at(at);
    const std::set<int> roots(pending.begin(), pending.end());
    while (!pending.empty()) {
      const int id = pending.back();
      pending.pop_back();
      if (!seen.insert(id).second) continue;
      if (id == stored || (loads(id, at) && !roots.contains(id))) {
        bytes += phase_.bytes(id);
        continue;
      }
      const Node& n = graph_.node(id);
      if (n.op == Op::matmul) continue;
      for (int operand : n.operands) {
        if (graph_.node(operand).shape.is_tensor()) pending.push_back(operand);
      }
    }
    return bytes;
  }

  const PhaseWork& phase_;
  const Graph& graph_;
  std::vector<std::vector<PlanPoint>> makers_;  // by node, ascending
  std::set<int> stored_;                        // found so far
  bool others_are_there_ = false;               // whether values of the other phase are in memory
};

}  // namespace

std::vector<int> worth_storing(const PhaseWork& phase) { return Finder(phase).worth_storing(); }

std::vector<PlanPoint> first_makers(const PhaseWork& phase) { return Finder(phase).first_makers(); }

}  // namespace coda
