// SPDX-License-Identifier: Apache-2.0
// Computes the partition in these steps. First, what must be stored or reduced (roots). Then, until
// nothing changes: which forward values the backward reads (a minimum cut), which values pass
// between programs of a phase (one cut each), and what is stored because several programs would
// recompute it. Finally, the programs for floating roots.
#include "plan/partition/partition.h"

#include <algorithm>

#include "coda/error.h"
#include "ir/node_set.h"
#include "ir/readers.h"
#include "ir/rebuild.h"
#include "plan/partition/inverses.h"
#include "plan/partition/min_cut.h"
#include "plan/partition/roots.h"
#include "plan/partition/worth_storing.h"

namespace coda {
namespace {

std::vector<int> roots_of(const JointGraph& joint) {
  std::vector<int> roots = joint.outputs;
  for (int g : joint.gradients) {
    if (g >= 0) roots.push_back(g);
  }
  return roots;
}

class Partitioner {
 public:
  explicit Partitioner(const PartitionRequest& request)
      : request_(request),
        joint_(*request.joint),
        graph_(*joint_.graph),
        live_(reached_from(graph_, roots_of(joint_))),
        readers_(graph_, live_),
        links_(inverse_links(graph_, live_, joint_.forward, readers_)),
        classes_(links_),
        seen_(graph_.size()),
        roots_(find_roots(joint_, live_, request.fuse)) {
    out_.order = order_units(joint_, live_, readers_, request.fuse);
    ready_ = std::make_unique<ReadyTimes>(joint_, out_.order, request.fuse);
    ready_->compute(live_, out_.reduced);
  }

  Partition run() {
    for (bool changed = true; changed;) {
      changed = cut_saved();
      changed = cut_phase(false) || changed;
      changed = cut_phase(true) || changed;
      if (!changed) changed = store_recomputed(false) || store_recomputed(true);
    }
    choose_stand_ins();
    place_home_roots();
    place_floating_roots();
    out_.links = links_;
    return std::move(out_);
  }

 private:
  bool live(int id) const { return live_[static_cast<size_t>(id)]; }
  bool is_forward(int id) const { return joint_.forward[static_cast<size_t>(id)]; }
  bool is_tensor(int id) const { return graph_.node(id).shape.is_tensor(); }
  const Unit& unit(int k) const { return out_.order.units[static_cast<size_t>(k)]; }
  double bytes(int id) const {
    const Shape& shape = graph_.node(id).shape;
    return request_.storage_bytes * static_cast<double>(shape.rows.evaluate(request_.sizes)) *
           static_cast<double>(shape.cols.evaluate(request_.sizes));
  }

  // ---- needs ----

  // The tensors that the program of `root` reads: those that it neither computes as tiles nor can
  // compute by floating them into itself.
  void gather(int root, std::set<int>& needs) {
    std::vector<int> pending{root};
    seen_.clear();
    const ReadyTimes::Time& t = ready_->of(root);
    const bool backward = !is_forward(root);
    while (!pending.empty()) {
      const int id = pending.back();
      pending.pop_back();
      if (!seen_.insert(id) || graph_.node(id).op == Op::matmul) continue;
      for (int operand : graph_.node(id).operands) {
        if (!is_tensor(operand)) continue;
        // A floating value is computed in the program itself, unless it is a root: then it has
        // needs of its own.
        const bool floats = !ready_->of(operand).home && !is_source(graph_, operand) &&
                            (!backward || !is_forward(operand));
        const bool stored = (backward ? backward_stores_ : forward_stores_).contains(operand);
        const bool here =
            t.home ? ready_->is_home(operand, t.at.slot) || (floats && !stored) : floats;
        if (here) {
          pending.push_back(operand);
        } else {
          needs.insert(operand);
        }
      }
    }
  }

  // The needs of all programs of a phase, separately for forward and backward values.
  void phase_needs(bool backward, std::set<int>& forward_values, std::set<int>& backward_values) {
    std::set<int> all;
    for (int id : backward ? backward_stores_ : forward_stores_) gather(id, all);
    for (int id : reductions_) {
      if (is_forward(id) != backward) gather_reduction(id, all);
    }
    for (int id : all) (is_forward(id) ? forward_values : backward_values).insert(id);
  }

  void gather_reduction(int id, std::set<int>& needs) {
    const int operand = graph_.node(id).operands[0];
    if (is_source(graph_, operand) || (is_forward(operand) && !is_forward(id))) {
      needs.insert(operand);
    } else {
      gather(operand, needs);
    }
  }

  // ---- cuts ----

  double parameter_free_bytes(int id) const {
    if (is_source(graph_, id)) {
      const Node& base = graph_.node(source_base(graph_, id));
      if (base.op == Op::input && base.kind != InputKind::activation) return 0;
      return bytes(source_base(graph_, id));
    }
    return bytes(id);
  }

  // The forward values that the backward reads from memory. Values linked by a proven inverse are
  // one vertex.
  bool cut_saved() {
    std::set<int> needs = roots_.forward_needs;
    std::set<int> unused;
    phase_needs(true, needs, unused);
    CutProblem problem;
    problem.vertices = graph_.size();
    problem.capacity.assign(static_cast<size_t>(graph_.size()), kNever);
    for (int id = 0; id < graph_.size(); ++id) {
      if (!live(id) || !is_forward(id) || !is_tensor(id)) continue;
      const int v = classes_.of(id);
      const bool storable =
          is_source(graph_, id) || ready_->of(id).home || forward_stores_.contains(id);
      if (storable) {
        double cost = parameter_free_bytes(id);
        if (request_.also_saved.contains(id) || kept_.contains(id)) cost = 0;
        // The caller's output is stored anyway, so it costs only a read.
        if (joint_.seeded.contains(id)) cost *= 0.5;
        double& capacity = problem.capacity[static_cast<size_t>(v)];
        capacity = std::min(capacity, cost);
      }
      const bool recomputed = !is_source(graph_, id) && graph_.node(id).op != Op::matmul;
      if (!recomputed) problem.sources.push_back(v);
      if (!recomputed) continue;
      for (int operand : graph_.node(id).operands) {
        if (is_tensor(operand) && classes_.of(operand) != v)
          problem.edges.emplace_back(classes_.of(operand), v);
      }
    }
    for (int id : needs) problem.needs.push_back(classes_.of(id));
    std::set<int> saved;
    for (int v : minimum_cut(problem)) saved.insert(representative(v));
    saved.insert(request_.also_saved.begin(), request_.also_saved.end());
    saved.insert(kept_.begin(), kept_.end());
    save_whole_concatenations(saved);
    for (int id : saved) {
      if (!is_source(graph_, id)) forward_stores_.insert(id);
    }
    const bool changed = saved != out_.saved;
    out_.saved = std::move(saved);
    return changed;
  }

  // All parts of a concatenation are stored in one tensor. If one part is saved for the backward,
  // the other parts are saved too: the backward cannot write some columns of a saved tensor anew.
  void save_whole_concatenations(std::set<int>& saved) const {
    for (int id = 0; id < graph_.size(); ++id) {
      if (!live(id) || graph_.node(id).op != Op::concat_columns) continue;
      const auto& parts = graph_.node(id).operands;
      const auto is_saved = [&](int part) { return saved.contains(part); };
      if (std::none_of(parts.begin(), parts.end(), is_saved)) continue;
      for (int part : parts)
        if (roots_.backward_operands.contains(part)) saved.insert(part);
    }
  }

  // The member of a class of inverse-linked values to store: an input, else an operand, else one
  // that is stored anyway, else the last.
  int representative(int vertex) const {
    int best = -1;
    int best_rank = -1;
    for (int id = classes_.of(vertex); id >= 0; id = classes_.next(id)) {
      if (!live(id) || !is_forward(id)) continue;
      const bool storable =
          is_source(graph_, id) || ready_->of(id).home || forward_stores_.contains(id);
      if (!storable) continue;
      const int rank = is_source(graph_, id) ? 2 : forward_stores_.contains(id) ? 1 : 0;
      if (rank >= best_rank) {
        best = id;
        best_rank = rank;
      }
    }
    invariant(best >= 0, "a saved class has no member that can be stored");
    return best;
  }

  // The values of one phase that pass between programs.
  bool cut_phase(bool backward) {
    std::set<int> forward_values;
    std::set<int> backward_values;
    phase_needs(backward, forward_values, backward_values);
    const std::set<int>& needs = backward ? backward_values : forward_values;
    std::set<int>& stores = backward ? backward_stores_ : forward_stores_;
    CutProblem problem;
    problem.vertices = graph_.size();
    problem.capacity.assign(static_cast<size_t>(graph_.size()), kNever);
    for (int id = 0; id < graph_.size(); ++id) {
      if (!live(id) || is_forward(id) == backward || !is_tensor(id)) continue;
      double& capacity = problem.capacity[static_cast<size_t>(id)];
      const bool home = ready_->of(id).home;
      if (is_source(graph_, id)) {
        capacity = 0;
        problem.sources.push_back(id);
        continue;
      }
      if (home) capacity = stores.contains(id) ? 0 : bytes(id);
      // A floating value that is stored anyway can be read after its first reader.
      if (!home && stores.contains(id)) capacity = 0;
      if (graph_.node(id).op == Op::matmul) {
        problem.sources.push_back(id);
        continue;
      }
      for (int operand : graph_.node(id).operands) {
        if (is_tensor(operand)) problem.edges.emplace_back(operand, id);
      }
    }
    problem.needs.assign(needs.begin(), needs.end());
    bool changed = false;
    for (int id : minimum_cut(problem)) {
      if (!is_source(graph_, id)) changed = stores.insert(id).second || changed;
    }
    return changed;
  }

  PhaseWork phase_work(bool backward) const {
    PhaseWork phase;
    phase.graph = &graph_;
    const std::set<int>& stores = backward ? backward_stores_ : forward_stores_;
    // A value without dependencies in the phase may be placed anywhere, so it gets its own program.
    const auto units = static_cast<int>(out_.order.units.size());
    phase.units = units;
    const auto at = [&](int id) {
      const ReadyTimes::Time& t = ready_->of(id);
      return !t.home && !(phase_start(backward) < t.at) ? PlanPoint{units + id, 0} : t.at;
    };
    for (int id : stores) phase.programs[at(id)].push_back(id);
    for (int id : reductions_) {
      const int operand = graph_.node(id).operands[0];
      const bool again = backward && is_forward(operand);
      if (is_forward(id) != backward)
        phase.programs[again ? PlanPoint{units + id, 0} : at(operand)].push_back(operand);
    }
    for (int id : roots_.backward_operands) {
      if (backward && !out_.saved.contains(id)) phase.programs[{units + id, 0}].push_back(id);
    }
    phase.is_own = [this, backward](int id, PlanPoint program) {
      return is_forward(id) != backward && program.level == 0 && ready_->is_home(id, program.slot);
    };
    phase.in_memory = [this, backward, &stores](int id) {
      if (is_source(graph_, id)) return true;
      if (!backward || !is_forward(id)) return stores.contains(id);
      for (int member = classes_.of(id); member >= 0; member = classes_.next(member)) {
        if (out_.saved.contains(member)) return true;
      }
      return false;
    };
    phase.is_of_phase = [this, backward](int id) { return is_forward(id) != backward; };
    phase.bytes = [this](int id) { return parameter_free_bytes_or_all(id); };
    phase.store_cost = [this](int id) {
      return is_forward(id) && forward_stores_.contains(id) ? 0 : bytes(id);
    };
    return phase;
  }

  // Saves forward values that the backward would otherwise recompute.
  bool store_recomputed(bool backward) {
    if (!request_.fuse) return false;
    const std::vector<int> found = worth_storing(phase_work(backward));
    for (int id : found) {
      if (backward && is_forward(id)) kept_.insert(id);
      const bool is_new = (is_forward(id) ? forward_stores_ : backward_stores_).insert(id).second;
      if (is_new && !ready_->of(id).home) streams_.insert(id);
    }
    return !found.empty();
  }

  void choose_stand_ins() {
    for (int id = 0; id < graph_.size(); ++id) {
      if (!live(id) || !is_forward(id) || out_.saved.contains(id)) continue;
      for (int member = classes_.of(id); member >= 0; member = classes_.next(member)) {
        if (out_.saved.contains(member)) out_.stand_in[id] = member;
      }
    }
    for (int id : roots_.backward_operands) {
      if (!out_.saved.contains(id)) out_.dropped.push_back(id);
    }
  }

  // ---- places ----

  void place_home_roots() {
    for (int id : forward_stores_) {
      if (ready_->of(id).home) store_at(id, ready_->of(id).at, false);
    }
    for (int id : backward_stores_) {
      if (ready_->of(id).home) store_at(id, ready_->of(id).at, true);
    }
    for (int id : reductions_) {
      const int operand = graph_.node(id).operands[0];
      const ReadyTimes::Time& t = ready_->of(operand);
      if (request_.fuse && t.home && is_forward(operand) == is_forward(id) &&
          vectors_known(id, t.at))
        reduce_at(id, t.at);
    }
  }

  // A select_column also reads an index vector.
  bool vectors_known(int id, PlanPoint at) const {
    const auto& operands = graph_.node(id).operands;
    return std::all_of(operands.begin() + 1, operands.end(),
                       [&](int operand) { return ready_->of(operand).at <= at; });
  }

  void store_at(int id, PlanPoint at, bool backward) {
    (backward ? out_.stored_backward : out_.stored_forward)[id] = at;
    out_.programs[at].stores.push_back(id);
  }

  void reduce_at(int id, PlanPoint at) {
    if (ready_->of(id).at != at.next()) moved_.insert(id);
    out_.reduced[id] = at;
    out_.programs[at].reductions.push_back(id);
  }

  void place_floating_roots() {
    // In ascending order of ids, because a root reads only smaller ids. Recomputed forward operands
    // come first in the backward.
    for (int id : out_.dropped) place_store(id, true);
    std::set<int> rest = forward_stores_;
    rest.insert(backward_stores_.begin(), backward_stores_.end());
    rest.insert(reductions_.begin(), reductions_.end());
    for (int id : rest) {
      if (reductions_.contains(id)) {
        if (!out_.reduced.contains(id)) place_reduction(id);
        continue;
      }
      const bool backward = backward_stores_.contains(id);
      const bool placed = (backward ? out_.stored_backward : out_.stored_forward).contains(id);
      if (!placed && !streams_.contains(id)) place_store(id, backward);
    }
    place_streams();
  }

  // Each is stored by the first program that computes it.
  void place_streams() {
    for (const bool backward : {false, true}) {
      PhaseWork phase = phase_work(backward);
      phase.programs.clear();
      for (const auto& [at, work] : out_.programs) {
        if ((at.slot >= out_.order.boundary) != backward) continue;
        phase.programs[at] = work.stores;
        for (int id : work.reductions) phase.programs[at].push_back(graph_.node(id).operands[0]);
      }
      phase.in_memory = [this, stored = phase.in_memory](int id) {
        return stored(id) && !streams_.contains(id);
      };
      const std::vector<PlanPoint> first = first_makers(phase);
      for (int id : streams_) {
        if (is_forward(id) == backward) continue;
        const PlanPoint maker = first[static_cast<size_t>(id)];
        if (maker == PlanPoint{}) {
          place_store(id, backward);
        } else {
          store_at(id, maker, backward);
        }
      }
    }
  }

  PlanPoint phase_start(bool backward) const { return {backward ? out_.order.boundary : -1, 1}; }
  PlanPoint phase_end(bool backward) const {
    return {backward ? static_cast<int>(out_.order.units.size()) : out_.order.boundary, 0};
  }

  void place_store(int id, bool backward) {
    refresh_times();
    PlanPoint earliest = ready_->of(id).at;
    if (backward) earliest = std::max(earliest, phase_start(true));
    const PlanPoint at = find_place(id, earliest, deadline(id, backward), backward, false);
    store_at(id, at, backward);
  }

  // Times change only if a reduction is not at its earliest point.
  void refresh_times() {
    ready_->update(moved_, readers_, out_.reduced);
    moved_.clear();
  }

  void place_reduction(int id) {
    refresh_times();
    const bool backward = !is_forward(id);
    const int operand = graph_.node(id).operands[0];
    const ReadyTimes::Time& t = ready_->of(operand);
    PlanPoint earliest = t.home ? t.at.next() : t.at;
    for (size_t i = 1; i < graph_.node(id).operands.size(); ++i) {
      earliest = std::max(earliest, ready_->of(graph_.node(id).operands[i]).at);
    }
    earliest = std::max(earliest, phase_start(backward));
    reduce_at(id, find_place(operand, earliest, deadline(id, backward), backward, true));
  }

  // The first program that reads `id`, which must come after the program that computes it. Units
  // read stored tensors (also through views); a program that holds a tensor's tile computes it
  // itself. Every program that uses a value derived from a reduction reads the reduction.
  PlanPoint deadline(int id, bool backward) {
    PlanPoint first = phase_end(backward);
    const bool is_vector = !is_tensor(id);
    const auto& stored = backward ? out_.stored_backward : out_.stored_forward;
    seen_.clear();
    std::vector<int> pending{id};
    while (!pending.empty()) {
      const int v = pending.back();
      pending.pop_back();
      for (int reader : readers_.of(v)) {
        const Op op = graph_.node(reader).op;
        // The backward reads columns of recomputed values through views of the forward.
        const bool view = op == Op::slice_columns || op == Op::concat_columns;
        if ((is_forward(reader) == backward && !view) || !seen_.insert(reader)) continue;
        const int k = out_.order.unit_of[static_cast<size_t>(reader)];
        if (k >= 0) {
          first = std::min(first, PlanPoint{k, 0});
          continue;
        }
        if (!is_vector && !view) continue;
        if (is_tensor(reader) && ready_->of(reader).home) {
          first = std::min(first, ready_->of(reader).at);
          continue;
        }
        auto placed = stored.find(reader);
        if (is_tensor(reader) && placed != stored.end()) first = std::min(first, placed->second);
        pending.push_back(reader);
      }
    }
    return first;
  }

  // A GEMM program with the same tiles between `earliest` and `deadline` that loads the least in
  // addition; else a tile program that already loads part of it; else a new one. Of equally good
  // places the last, because the result takes memory from there on. But a reduction of this phase's
  // values goes to the first place, because its operands may be freed after it. Only units near
  // both ends are examined, so that a layer's programs and the search time do not depend on the
  // depth.
  PlanPoint find_place(int value, PlanPoint earliest, PlanPoint deadline, bool backward,
                       bool is_reduction) {
    constexpr int kNear = 64;
    const bool from_last = !is_reduction || earliest == phase_start(backward);
    const int first = std::max(earliest.slot, 0);
    const int last = std::min(deadline.slot, static_cast<int>(out_.order.units.size()) - 1);
    const auto is_near = [&](int slot) {
      return slot <= first + kNear || (slot >= last - kNear && slot <= last);
    };
    std::vector<PlanPoint> gemms;
    for (int k = first; request_.fuse && k <= last; ++k) {
      if (is_near(k) && unit(k).is_backward == backward && unit(k).is_gemm &&
          has_tiles_of(k, graph_.node(value).shape)) {
        gemms.push_back({k, 0});
      }
    }
    std::vector<PlanPoint> tile_programs;
    for (auto it = out_.programs.lower_bound(earliest);
         it != out_.programs.end() && it->first < deadline; ++it) {
      const PlanPoint at = it->first;
      if (at.level > 0 && is_near(at.slot) && (at.slot >= out_.order.boundary) == backward)
        tile_programs.push_back(at);
    }
    PlanPoint best;
    double least = kNever;
    const auto compare = [&](std::vector<PlanPoint>& places) {
      if (from_last) std::reverse(places.begin(), places.end());
      for (PlanPoint at : places) {
        if (at < earliest || !(at < deadline) || least == 0) continue;
        const double extra = extra_loads(value, at, backward);
        if (extra >= least) continue;
        least = extra;
        best = at;
      }
    };
    compare(gemms);
    if (least < kNever) return best;
    const bool is_local = ready_->of(value).home;  // local to one GEMM's tile
    best = from_last && !is_local ? std::max(earliest, {deadline.slot - 1, 1}) : earliest;
    least = extra_loads(value, best, backward);
    compare(tile_programs);
    return best;
  }

  bool has_tiles_of(int k, const Shape& shape) const {
    return std::any_of(unit(k).nodes.begin(), unit(k).nodes.end(), [&](int id) {
      return graph_.node(id).op == Op::matmul && graph_.node(id).shape == shape;
    });
  }

  // Bytes that the program at `at` would load to compute `value`, in addition to what it has.
  double extra_loads(int value, PlanPoint at, bool backward) const {
    std::set<int> here;  // already loaded or computed by the program
    auto work = out_.programs.find(at);
    if (work != out_.programs.end()) {
      for (int id : work->second.stores) reached_in_program(id, at, backward, here);
      for (int id : work->second.reductions) {
        reached_in_program(graph_.node(id).operands[0], at, backward, here);
      }
    }
    std::set<int> all = here;
    reached_in_program(value, at, backward, all);
    double extra = 0;
    for (int id : all) {
      if (!here.contains(id) && in_memory(id, at, backward))
        extra += parameter_free_bytes_or_all(id);
    }
    return extra;
  }

  double parameter_free_bytes_or_all(int id) const {
    return bytes(is_source(graph_, id) ? source_base(graph_, id) : id);
  }

  // Whether a program at `at` reads `id` from memory instead of computing it.
  bool in_memory(int id, PlanPoint at, bool backward) const {
    if (is_source(graph_, id)) return true;
    if (graph_.node(id).op == Op::concat_columns) {
      const auto& parts = graph_.node(id).operands;
      return std::all_of(parts.begin(), parts.end(),
                         [&](int part) { return in_memory(part, at, backward); });
    }
    if (ready_->is_home(id, at.slot) && at.level == 0 && is_forward(id) != backward) return false;
    if (backward && out_.saved.contains(id)) return true;
    const auto& stored = backward ? out_.stored_backward : out_.stored_forward;
    auto found = stored.find(id);
    return found != stored.end() && found->second < at;
  }

  void reached_in_program(int id, PlanPoint at, bool backward, std::set<int>& seen) const {
    if (!is_tensor(id) || !seen.insert(id).second) return;
    if (in_memory(id, at, backward)) return;
    if (graph_.node(id).op == Op::matmul) return;
    auto stand_in = out_.stand_in.find(id);
    if (backward && stand_in != out_.stand_in.end())
      return reached_in_program(stand_in->second, at, backward, seen);
    for (int operand : graph_.node(id).operands) reached_in_program(operand, at, backward, seen);
  }

  const PartitionRequest& request_;
  const JointGraph& joint_;
  const Graph& graph_;
  std::vector<bool> live_;
  Readers readers_;
  std::vector<InverseLink> links_;
  InverseClasses classes_;
  NodeSet seen_;  // of the current walk
  Partition out_;
  std::unique_ptr<ReadyTimes> ready_;
  std::set<int> moved_;  // reductions that are not where `ready_` has them
  Roots roots_;          // and other values that must be in memory, as they are found
  std::set<int>& forward_stores_ = roots_.forward_stores;
  std::set<int>& backward_stores_ = roots_.backward_stores;
  const std::set<int>& reductions_ = roots_.reductions;
  std::set<int> streams_;  // floating values that the first program to compute them stores
  std::set<int> kept_;     // forward values that are saved instead of recomputed
};

}  // namespace

Partition partition(const PartitionRequest& request) { return Partitioner(request).run(); }

}  // namespace coda
