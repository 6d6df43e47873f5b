// SPDX-License-Identifier: Apache-2.0
// Writes the programs in order of their positions, then inserts finalizers between them.
#include "plan/write/emit.h"

#include <algorithm>
#include <limits>

#include "coda/error.h"
#include "coda/plan.h"
#include "ir/calls.h"
#include "plan/after/row_blocks.h"
#include "plan/partition/materialise.h"
#include "plan/write/program_writer.h"

namespace coda {
namespace {

class Emission {
 public:
  Emission(const JointGraph& joint, const Partition& partition, const CompileRequest& request,
           const CompileOptions& options)
      : joint_(joint),
        graph_(*joint.graph),
        partition_(partition),
        options_(options),
        names_(joint, partition, request, options),
        ready_(joint, partition.order, options.fuse) {
    std::vector<bool> all(static_cast<size_t>(graph_.size()), true);
    ready_.compute(all, partition.reduced);
  }

  Plan run(std::vector<Misfit>* misfits) {
    for (int id : joint_.outputs) need_if_vector(id, kCaller);
    for (int id : joint_.gradients) {
      if (id >= 0) need_if_vector(id, kCaller);
    }
    for (const auto& [at, work] : partition_.programs) write_program(at, work);
    for (size_t k = 0; k < partition_.order.units.size(); ++k) {
      const Unit& unit = partition_.order.units[k];
      if (!unit.is_gemm && !unit.nodes.empty()) write_call(static_cast<int>(k), unit);
      for (int id : unit.nodes) {
        for (int operand : graph_.node(id).operands) need_parts(operand, {static_cast<int>(k), 0});
      }
    }
    invariant(misfits != nullptr || misfits_.empty(), "a program's values fit into no tile");
    if (misfits != nullptr) *misfits = misfits_;
    if (!misfits_.empty()) return {};
    write_finalizers();
    return assemble();
  }

 private:
  bool is_forward(int id) const { return joint_.forward[static_cast<size_t>(id)]; }

  // The caller reads after everything has run.
  static constexpr PlanPoint kCaller{std::numeric_limits<int>::max(), 0};

  // A concatenation of vectors is stored part by part.
  void need_if_vector(int id, PlanPoint reader) {
    const Node& n = graph_.node(id);
    if (n.shape.is_tensor()) return need_parts(id, reader);
    if (n.op == Op::concat_columns) {
      for (int part : n.operands) need_if_vector(part, reader);
      return;
    }
    need(id, reader);
  }

  // Vectors among the columns of a tensor.
  void need_parts(int id, PlanPoint reader) {
    const Node& n = graph_.node(id);
    if (n.op == Op::slice_columns) return need_parts(n.operands[0], reader);
    if (n.op != Op::concat_columns) return;
    for (int part : n.operands) need_if_vector(part, reader);
  }

  void need(int vector, PlanPoint reader) {
    const auto [found, is_new] = needed_.try_emplace(vector, reader);
    if (!is_new) found->second = std::min(found->second, reader);
  }

  // What a program writes: stored tiles and reductions, each ascending.
  struct Roots {
    std::vector<int> stores;
    std::vector<int> reductions;
  };

  ProgramWriter write(PlanPoint at, const std::string& name, const Roots& roots) {
    ProgramWriter writer(joint_, partition_, names_, name, at,
                         at.slot >= partition_.order.boundary);
    for (int id : roots.stores) writer.store_tile(id);
    for (int id : roots.reductions) {
      const int with = reduction_with_lanes_of(id, roots.reductions);
      names_.reduce_with(id, with);
      if (with == id) writer.reduce(id);
    }
    return writer;
  }

  // The partials of an entropy have those of a log-sum-exp of the same values.
  int reduction_with_lanes_of(int id, const std::vector<int>& reductions) const {
    const Node& n = graph_.node(id);
    if (n.op == Op::select_column || n.reduction != PartialKind::log_sum_exp) return id;
    for (int other : reductions) {
      const Node& o = graph_.node(other);
      if (o.op == n.op && o.operands == n.operands && o.reduction == PartialKind::entropy)
        return other;
    }
    return id;
  }

  void write_program(PlanPoint at, const ProgramWork& work) {
    Roots roots{work.stores, work.reductions};
    std::sort(roots.stores.begin(), roots.stores.end());
    std::sort(roots.reductions.begin(), roots.reductions.end());
    ProgramWriter writer = write(at, program_name(at), roots);
    if (!writer.misfit()) return add_program(at, roots, std::move(writer));
    const std::vector<Roots> groups = roots_that_fit(at, roots);
    for (size_t i = 0; i < groups.size(); ++i) {
      const std::string name = program_name(at) + (i > 0 ? "." + std::to_string(i + 1) : "");
      add_program(at, groups[i], write(at, name, groups[i]));
    }
  }

  // Splits the roots of a program into as few programs as their tiles allow, the one with the GEMM
  // first. A GEMM is not repeated: what fits neither with it nor alone is a misfit.
  std::vector<Roots> roots_that_fit(PlanPoint at, const Roots& roots) {
    std::vector<Roots> groups;
    bool has_product = false;
    const auto place = [&](int id, std::vector<int> Roots::* kind) {
      std::optional<Misfit> misfit;
      for (Roots& group : groups) {
        (group.*kind).push_back(id);
        const std::optional<Misfit> here = write(at, "trial", group).misfit();
        if (!here) return;
        (group.*kind).pop_back();
        if (!misfit) misfit = here;
      }
      Roots alone;
      (alone.*kind).push_back(id);
      ProgramWriter writer = write(at, "trial", alone);
      const std::optional<Misfit> still = writer.misfit();
      if (still || (has_product && writer.has_product())) {
        misfits_.push_back(still ? *still : *misfit);
        return;
      }
      has_product = has_product || writer.has_product();
      groups.insert(writer.has_product() ? groups.begin() : groups.end(), alone);
    };
    for (int id : roots.stores) place(id, &Roots::stores);
    for (int id : roots.reductions) place(id, &Roots::reductions);
    return groups;
  }

  void add_program(PlanPoint at, const Roots& roots, ProgramWriter writer) {
    const bool backward = at.slot >= partition_.order.boundary;
    for (int vector : writer.loaded_vectors()) need(vector, at);
    read_by_programs_.insert(writer.loaded_vectors().begin(), writer.loaded_vectors().end());
    PlanStep step;
    step.role = writer.has_product() ? StepRole::gemm : StepRole::tile;
    Program program = writer.finish();
    step.name = program.name;
    for (int id : roots.stores)
      explain(id, "store " + names_.written(id, backward), at, step.reasons);
    for (int id : roots.reductions)
      explain(graph_.node(id).operands[0], "reduction " + names_.name_of(id), at, step.reasons);
    step.work = std::move(program);
    steps_[at].push_back(std::move(step));
  }

  // Explains why a value that is not local to a GEMM's tile is in the program at `at`: which
  // operand came too late for earlier epilogues, or that no GEMM computes its operands.
  void explain(int id, const std::string& what, PlanPoint at, std::vector<std::string>& reasons) {
    const ReadyTimes::Time& time = ready_.of(id);
    if (time.home && time.at == at) return;
    int vector = -1;
    int tensor = -1;
    latest_operands(id, vector, tensor);
    std::string reason;
    if (vector >= 0 && (tensor < 0 || ready_.of(tensor).at < ready_.of(vector).at)) {
      const PlanPoint known = ready_.of(vector).at;
      const PlanPoint made{known.slot, std::max(known.level - 1, 0)};
      const bool at_start =
          made.level == 0 && (made.slot < 0 || made.slot == partition_.order.boundary);
      reason = "waits for " + names_.name_of(vector) + ", which is finalized " +
               (at_start ? "as the phase begins" : "behind " + program_name(made));
    } else if (tensor >= 0 && graph_.node(tensor).op == Op::result) {
      const std::string& call = graph_.node(graph_.node(tensor).operands[0]).name;
      reason = call == kStoredCall
                   ? "is made of " + names_.name_of(tensor) + " as it is read from memory"
                   : "is made of a result of " + call + ", not of a product's tile";
    } else {
      reason = "is made of tensors that lie in memory, no product makes one of them here";
    }
    reasons.push_back(what + " " + reason +
                      (at.level == 0 ? "; this epilogue has its tiles and loads least extra for it"
                                     : "; no epilogue with its tiles comes in time"));
  }

  // Of the operands of a floating value: the latest vector that is not given, and the latest tensor
  // that is read from memory.
  void latest_operands(int id, int& vector, int& tensor) const {
    std::vector<int> pending{id};
    std::set<int> seen;
    while (!pending.empty()) {
      const int v = pending.back();
      pending.pop_back();
      for (int operand : graph_.node(v).operands) {
        if (!seen.insert(operand).second) continue;
        const bool given = graph_.node(operand).operands.empty();
        int& latest = graph_.node(operand).shape.is_tensor() ? tensor : vector;
        const bool floats =
            &latest == &tensor && !is_source(graph_, operand) && !ready_.of(operand).home;
        if (floats) {
          pending.push_back(operand);
        } else if (&latest == &tensor || !given) {
          if (latest < 0 || ready_.of(latest).at < ready_.of(operand).at) latest = operand;
        }
      }
    }
  }

  std::string program_name(PlanPoint at) const {
    const std::string phase = at.slot >= partition_.order.boundary ? "backward" : "forward";
    if (at.level > 0)
      return phase + ".tile" + std::to_string(at.slot) + "_" + std::to_string(at.level);
    const Unit& unit = partition_.order.units[static_cast<size_t>(at.slot)];
    std::string weight;
    for (int operand : graph_.node(unit.nodes[0]).operands) {
      std::vector<int> pending{operand};
      for (int depth = 0; depth < 8 && !pending.empty() && weight.empty(); ++depth) {
        const Node& n = graph_.node(pending.back());
        if (n.op == Op::input && n.kind == InputKind::parameter) weight = n.name;
        pending.clear();
        if (!n.operands.empty() && n.shape.is_tensor() && n.op != Op::matmul)
          pending = {n.operands[0]};
      }
    }
    const std::string kind = unit.contracts_rows ? "weight_gradient"
                             : unit.is_gradient  ? "data_gradient"
                                                 : "product";
    return phase + "." + kind + std::to_string(at.slot) + (weight.empty() ? "" : "." + weight);
  }

  void write_call(int k, const Unit& unit) {
    const Node& n = graph_.node(unit.nodes[0]);
    if (n.name == kStoredCall) {
      const int operand = n.operands[0];
      if (!graph_.node(operand).shape.is_tensor()) need_if_vector(operand, {k, 0});
      read_by_programs_.insert(operand);
      return;
    }
    OpaqueCall call;
    call.function = n.name;
    call.attributes = n.attributes;
    call.sizes = n.sizes;
    for (int operand : n.operands) {
      if (graph_.node(operand).shape.is_tensor()) {
        const TensorRef ref = names_.read(operand, unit.is_backward);
        invariant(ref.repeat.is(1) && ref.row_index < 0,
                  "a call's operand is a gathered or repeated table");
        call.inputs.push_back(ref.name);
      } else {
        if (!is_source(graph_, operand)) {
          need(operand, {k, 0});
          read_by_programs_.insert(operand);
        }
        call.inputs.push_back(names_.vector(operand));
      }
    }
    for (size_t i = 0; i < n.results.size(); ++i) {
      Node result{.op = Op::result,
                  .shape = n.results[i],
                  .operands = {unit.nodes[0]},
                  .which = static_cast<int>(i)};
      const int id = joint_.graph->intern(std::move(result));
      call.outputs.push_back(names_.opaque_result(id));
      const std::string added_to = can_add(n) && !adds(n) ? names_.added_to(id) : "";
      if (!added_to.empty()) call.inputs.push_back(added_to);
    }
    PlanStep step;
    step.role = StepRole::opaque;
    step.name = (unit.is_backward ? "backward." : "forward.") + n.name + std::to_string(k);
    step.work = std::move(call);
    steps_[{k, 0}].push_back(std::move(step));
  }

  // ---- Finalizers.

  // A vector is computed as soon as it is known, but not before its phase.
  PlanPoint finalized_at(int id) const {
    PlanPoint at = ready_.of(id).at;
    if (at.level == 0) at.level = 1;
    const PlanPoint start =
        is_forward(id) ? PlanPoint{-1, 1} : PlanPoint{partition_.order.boundary, 1};
    return std::max(at, start);
  }

  // Whether the finalizer at `at` computes the vector instead of loading it. What the backward
  // computes from forward vectors alone (r²) is recomputed wherever it is used, which is cheaper
  // than another finalizer.
  bool made_in_finalizer(int id, PlanPoint at, bool forward) const {
    if (is_forward(id) != forward) return false;
    return finalized_at(id) == at || is_recomputed(id);
  }
  bool is_recomputed(int id) const {
    return !is_forward(id) && finalized_at(id) == PlanPoint{partition_.order.boundary, 1};
  }

  static bool stored_by_tiles(const Node& n) { return n.op == Op::select_column; }

  bool needs_finalizer(int id) const {
    const Node& n = graph_.node(id);
    if (n.op == Op::constant || n.op == Op::column_index || n.op == Op::ones) return false;
    if (is_source(graph_, id) || (n.op == Op::transpose && is_source(graph_, n.operands[0])))
      return false;
    return !stored_by_tiles(n);
  }

  void write_finalizers() {
    // In reverse order, because a later finalizer may need what an earlier one stores.
    std::map<PlanPoint, std::set<int>> work;
    std::set<int> again;
    std::vector<int> pending;
    for (const auto& [id, reader] : needed_) pending.push_back(id);
    std::set<int> seen;
    while (!pending.empty()) {
      const int id = pending.back();
      pending.pop_back();
      if (!needs_finalizer(id) || !seen.insert(id).second) continue;
      const PlanPoint at = finalized_at(id);
      (is_recomputed(id) ? again : work[at]).insert(id);
      std::vector<int> below{id};
      std::set<int> visited;
      while (!below.empty()) {
        const int v = below.back();
        below.pop_back();
        if (!visited.insert(v).second || graph_.node(v).shape.is_tensor()) continue;
        if (graph_.node(v).operands.empty() ||
            graph_.node(graph_.node(v).operands[0]).shape.is_tensor())
          continue;
        for (int operand : graph_.node(v).operands) {
          if (graph_.node(operand).shape.is_tensor() || !needs_finalizer(operand)) continue;
          if (made_in_finalizer(operand, at, is_forward(v))) {
            below.push_back(operand);
          } else {
            pending.push_back(operand);
            read_by_programs_.insert(operand);
          }
        }
      }
    }
    // In the last finalizer before the first program that reads it, so that in a deep model no
    // finalizer serves all layers.
    for (int id : again) {
      const auto after = work.upper_bound(needed_.at(id));
      const bool is_at_start = after == work.begin() || std::prev(after)->first < finalized_at(id);
      work[is_at_start ? finalized_at(id) : std::prev(after)->first].insert(id);
    }
    for (const auto& [at, ids] : work) {
      const bool backward = at.slot >= partition_.order.boundary;
      const std::string name = (backward ? "backward.finalize" : "forward.finalize") +
                               std::to_string(at.slot) + "_" + std::to_string(at.level);
      ProgramWriter writer(joint_, partition_, names_, name, at, backward);
      const PlanPoint here = at;
      for (int id : ids) {
        writer.store_vector(
            id,
            [this, here, backward](int v) {
              return needs_finalizer(v) && made_in_finalizer(v, here, !backward);
            },
            [this](int v) { return read_by_programs_.contains(v); });
      }
      PlanStep step;
      step.role = StepRole::finalizer;
      step.name = name;
      step.work = writer.finish();
      finalizers_[at] = std::move(step);
    }
  }

  Plan assemble() {
    Plan plan;
    std::set<PlanPoint> points;
    for (const auto& [at, steps] : steps_) points.insert(at);
    for (const auto& [at, step] : finalizers_) points.insert(at);
    for (const PlanPoint& at : points) {
      std::vector<PlanStep>& phase =
          at.slot >= partition_.order.boundary ? plan.backward : plan.forward;
      auto finalizer = finalizers_.find(at);  // computes values for the program at this point
      if (finalizer != finalizers_.end()) phase.push_back(std::move(finalizer->second));
      auto steps = steps_.find(at);
      if (steps == steps_.end()) continue;
      for (PlanStep& step : steps->second) phase.push_back(std::move(step));
    }
    // The nodes say what a loop over row blocks writes over all rows.
    RowBlocksRequest loop{
        .loop = {joint_.row_blocks.symbol, options_.loss_rows}, .values = {}, .sums = {}};
    for (int id : joint_.row_blocks.values) {
      if (partition_.stored_forward.contains(id)) loop.values.insert(names_.written(id, false));
    }
    for (int id : joint_.row_blocks.sums) loop.sums.insert(names_.written(id, false));
    plan.tensors = names_.tensors();
    mark_saved(plan);
    mark_layer_starts(plan);
    if (joint_.row_blocks.widest >= 0) {
      const std::string refusal = make_row_blocks(plan, loop);
      if (!refusal.empty()) plan.notes.push_back(refusal);
    }
    return plan;
  }

  // A temporary of the forward that the backward reads (a norm's reciprocal) becomes saved.
  static void mark_saved(Plan& plan) {
    std::map<std::string, std::string> owner;  // a view is declared after its owner
    for (const PlanTensor& t : plan.tensors)
      owner[t.decl.name] = t.view_of.empty() ? t.decl.name : owner.at(t.view_of);
    std::set<std::string> forward;
    std::set<std::string> saved;
    for (const PlanStep& step : plan.forward) {
      for (const StepTensor& t : step_tensors(step)) forward.insert(owner.at(t.name));
    }
    for (const PlanStep& step : plan.backward) {
      for (const StepTensor& t : step_tensors(step)) {
        if (forward.contains(owner.at(t.name))) saved.insert(owner.at(t.name));
      }
    }
    for (PlanTensor& t : plan.tensors) {
      const bool is_saved = saved.contains(owner.at(t.decl.name));
      if (t.role == TensorRole::temporary && is_saved) t.role = TensorRole::saved;
    }
  }

  // The last of the starts is that of what follows the layers.
  void mark_layer_starts(Plan& plan) {
    for (size_t layer = 0; layer + 1 < joint_.starts.size(); ++layer) {
      for (int id : joint_.starts[layer]) {
        const auto other = partition_.stand_in.find(id);  // what is saved in its place
        const int saved = other == partition_.stand_in.end() ? id : other->second;
        if (!partition_.saved.contains(saved)) continue;
        const std::string name = names_.read(saved, false).name;
        for (PlanTensor& t : plan.tensors)
          if (t.decl.name == name) t.starts_layer = static_cast<int>(layer) + 1;
      }
    }
  }

  const JointGraph& joint_;
  const Graph& graph_;
  const Partition& partition_;
  const CompileOptions& options_;
  TensorNames names_;
  ReadyTimes ready_;
  std::map<PlanPoint, std::vector<PlanStep>> steps_;
  std::map<PlanPoint, PlanStep> finalizers_;
  std::map<int, PlanPoint> needed_;  // vectors that are read, with their first reader
  std::set<int> read_by_programs_;   // vectors that a program reads
  std::vector<Misfit> misfits_;
};

}  // namespace

Plan emit(const JointGraph& joint, const Partition& partition, const CompileRequest& request,
          const CompileOptions& options, std::vector<Misfit>* misfits) {
  return Emission(joint, partition, request, options).run(misfits);
}

}  // namespace coda
