// SPDX-License-Identifier: Apache-2.0
// Puts each step before the loop (if it needs nothing that the loop writes), into it (if it works
// row by row, or sums over rows into an accumulator), or after it.
#include "plan/after/row_blocks.h"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>

#include "base/rounding.h"
#include "coda/error.h"
#include "coda/plan.h"
#include "plan/after/split_finalizer.h"
#include "program/step_table.h"

namespace coda {
namespace {

// Owners that a step reads and writes; a view counts as its owner.
struct Uses {
  std::set<std::string> read;
  std::set<std::string> written;
};

class LoopMaker {
 public:
  LoopMaker(const Plan& plan, const RowBlocksRequest& request)
      : plan_(plan), request_(request), rows_(request.loop.symbol) {
    for (const PlanTensor& t : plan_.tensors) tensors_[t.decl.name] = &t;
  }

  std::string run() {
    find_range();
    if (first_ > last_) return "no step of the forward makes them";
    for (size_t i = first_; i <= last_ && refusal_.empty(); ++i) place(plan_.forward[i]);
    if (refusal_.empty()) check_tensors();
    if (refusal_.empty()) assemble();
    return refusal_;
  }
  Plan take() { return std::move(plan_); }

 private:
  void refuse(const PlanStep& step, const std::string& why) {
    if (refusal_.empty()) refusal_ = "step " + step.name + " " + why;
  }

  std::string owner(const std::string& name) const {
    const PlanTensor* t = tensors_.at(name);
    while (!t->view_of.empty()) t = tensors_.at(t->view_of);
    return t->decl.name;
  }

  Uses uses_of(const PlanStep& step) const {
    Uses uses;
    for (const StepTensor& t : step_tensors(step)) {
      if (t.read) uses.read.insert(owner(t.name));
      if (t.written) uses.written.insert(owner(t.name));
    }
    return uses;
  }

  static bool meet(const std::set<std::string>& a, const std::set<std::string>& b) {
    return std::any_of(a.begin(), a.end(), [&](const std::string& s) { return b.contains(s); });
  }

  bool touches_values(const Uses& uses) const {
    return meet(uses.read, request_.values) || meet(uses.written, request_.values);
  }

  void find_range() {
    first_ = plan_.forward.size();
    for (size_t i = 0; i < plan_.forward.size(); ++i) {
      if (!touches_values(uses_of(plan_.forward[i]))) continue;
      first_ = std::min(first_, i);
      last_ = i;
    }
  }

  void place(const PlanStep& step) {
    const Uses uses = uses_of(step);
    const bool must = touches_values(uses);
    const bool of_loop = meet(uses.read, made_);
    const bool of_later = meet(uses.read, made_later_);
    if (!must && !of_loop && !of_later) {
      before_.push_back(step);
      return;
    }
    if (must && of_later) return refuse(step, "needs a result over all rows inside the loop");
    if (step.role == StepRole::finalizer && !of_later) return place_finalizer(step);
    std::optional<PlanStep> body = of_later ? std::nullopt : body_of(step);
    if (body) {
      keep(*body);
    } else if (must) {
      refuse(step, "is not made row by row");
    } else {
      behind(step);
    }
  }

  void keep(PlanStep step) {
    step.loop = static_cast<int>(plan_.loops.size());
    for (const std::string& name : uses_of(step).written)
      (request_.sums.contains(name) ? made_later_ : made_).insert(name);
    body_.push_back(std::move(step));
  }

  void behind(const PlanStep& step) {
    const Uses uses = uses_of(step);
    made_later_.insert(uses.written.begin(), uses.written.end());
    behind_.push_back(step);
  }

  void place_finalizer(const PlanStep& step) {
    FinalizerParts parts = split_finalizer(std::get<Program>(step.work), request_.loop.symbol);
    if (parts.of_rows.steps.empty()) return behind(step);
    for (const TensorDecl& decl : parts.crossing) {
      added_.push_back({decl, TensorRole::temporary});
      tensors_[decl.name] = &added_.back();
    }
    PlanStep rows = step;
    rows.work = parts.of_rows;
    const auto body = body_of(rows);
    if (!body) return refuse(step, "is not made row by row");
    keep(*body);
    if (parts.rest.steps.empty()) return;
    PlanStep rest = step;
    rest.name = parts.rest.name;
    rest.work = parts.rest;
    behind(rest);
  }

  // The step as it runs in the loop; none if it cannot run there.
  std::optional<PlanStep> body_of(const PlanStep& step) const {
    const auto* program = std::get_if<Program>(&step.work);
    if (program == nullptr) return std::nullopt;
    if (is_row_wise(*program)) return step;
    std::optional<Program> later = adding(*program);
    if (!later) return std::nullopt;
    PlanStep body = step;
    body.later = std::move(later);
    return body;
  }

  bool mentions_rows(const Dim& dim) const { return dim.terms().contains(request_.loop.symbol); }

  // Whether each row of the results depends only on the same row of the operands (for column
  // partials: on the partial's rows).
  bool is_row_wise(const Program& program) const {
    for (const TensorDecl& t : program.tensors) {
      const bool fits = t.shape.rows == rows_ || !mentions_rows(t.shape.rows);
      if (!fits || mentions_rows(t.shape.cols)) return false;
    }
    const auto of_rows = [&](int tensor) {
      return program.tensors[static_cast<size_t>(tensor)].shape.rows == rows_;
    };
    for (const Step& s : program.steps) {
      if (mentions_rows(s.shape.cols)) return false;
      for (const GemmSegment& segment : s.segments()) {
        if (segment.is_scaled()) return false;  // scales have rows of their own
        if (segment.transpose_a || !of_rows(segment.a) || of_rows(segment.b)) return false;
      }
      if (program::is_tile_load(s) && (s.row_index() >= 0) == of_rows(s.tensor())) return false;
      if (program::is_effect(s) && !of_rows(s.tensor())) return false;
      if (program::info(s).group != program::StepGroup::finalizer) continue;
      const bool is_of_row =
          program::is_combination(s) && of_rows(s.tensor()) &&
          program.tensors[static_cast<size_t>(s.tensor())].kind == TensorKind::row_partial;
      if (!is_of_row) return false;
    }
    return true;
  }

  // For GEMMs over the rows whose multiples are only stored to sums: the program that adds to the
  // sums.
  std::optional<Program> adding(const Program& program) const {
    Program later = program;
    later.steps.clear();
    std::vector<int> place(program.steps.size(), -1);
    std::vector<bool> is_multiple(program.steps.size(), false);
    const auto push = [&later](Step step) {
      later.steps.push_back(std::move(step));
      return static_cast<int>(later.steps.size()) - 1;
    };
    for (size_t i = 0; i < program.steps.size(); ++i) {
      Step s = program.steps[i];
      const auto of_products = std::ranges::count_if(
          s.operands, [&](int o) { return is_multiple[static_cast<size_t>(o)]; });
      for (int& operand : s.operands) operand = place[static_cast<size_t>(operand)];
      if (program::is_product(s)) {
        for (const GemmSegment& segment : s.segments()) {
          const Shape& a = program.tensors[static_cast<size_t>(segment.a)].shape;
          if (!segment.transpose_a || segment.transpose_b || a.rows != rows_) return std::nullopt;
        }
        is_multiple[i] = true;
      } else if (program::is_tile_store(s)) {
        const TensorDecl& sum = program.tensors[static_cast<size_t>(s.tensor())];
        if (!request_.sums.contains(sum.name) || of_products != 1) return std::nullopt;
        const int before = push(program::tile_load(s.tensor(), s.shape));
        s.operands = {push(program::applied(Elementwise::add, {before, s.operands[0]}, s.shape))};
      } else if (of_products > 0) {
        if (!program::applies(s, Elementwise::mul) || of_products != 1) return std::nullopt;
        is_multiple[i] = true;
      } else if (program::info(s).group != program::StepGroup::vector &&
                 !program::is_elementwise(s)) {
        return std::nullopt;
      }
      place[i] = push(std::move(s));
    }
    return later;
  }

  // Whether only steps of the loop use this owner.
  bool is_of_loop_only(const std::string& name) const {
    for (const auto* steps : {&before_, &behind_, &plan_.backward}) {
      for (const PlanStep& step : *steps) {
        const Uses uses = uses_of(step);
        if (uses.read.contains(name) || uses.written.contains(name)) return false;
      }
    }
    for (size_t i = 0; i < plan_.forward.size(); ++i) {
      if (first_ <= i && i <= last_) continue;
      const Uses uses = uses_of(plan_.forward[i]);
      if (uses.read.contains(name) || uses.written.contains(name)) return false;
    }
    return true;
  }

  // Finds the tensors that only the loop uses, and checks that the others can be processed in
  // blocks.
  void check_tensors() {
    for (const PlanStep& step : body_) {
      for (const StepTensor& use : step_tensors(step)) {
        const PlanTensor& t = *tensors_.at(owner(use.name));
        if (t.decl.shape.rows != rows_) continue;
        if (t.role == TensorRole::temporary && is_of_loop_only(t.decl.name)) {
          local_.insert(t.decl.name);
        } else if (t.decl.kind != TensorKind::dense && t.decl.lanes != 1) {
          refuse(step, "shares partials of two lanes with steps outside of the loop");
        }
        if (request_.values.contains(t.decl.name) && !local_.contains(t.decl.name) &&
            t.role != TensorRole::output) {
          refuse(step, "makes " + t.decl.name + ", which is read outside of the loop");
        }
      }
    }
  }

  void assemble() {
    std::vector<PlanStep> forward(plan_.forward.begin(),
                                  plan_.forward.begin() + static_cast<std::ptrdiff_t>(first_));
    forward.insert(forward.end(), before_.begin(), before_.end());
    forward.insert(forward.end(), body_.begin(), body_.end());
    forward.insert(forward.end(), behind_.begin(), behind_.end());
    forward.insert(forward.end(), plan_.forward.begin() + static_cast<std::ptrdiff_t>(last_) + 1,
                   plan_.forward.end());
    plan_.forward = std::move(forward);
    plan_.tensors.insert(plan_.tensors.end(), added_.begin(), added_.end());
    for (PlanTensor& t : plan_.tensors) {
      if (local_.contains(t.decl.name)) t.loop = static_cast<int>(plan_.loops.size());
    }
    RowBlocks loop = request_.loop;
    loop.sums.assign(request_.sums.begin(), request_.sums.end());
    plan_.loops.push_back(std::move(loop));
  }

  Plan plan_;
  const RowBlocksRequest& request_;
  Dim rows_;
  std::map<std::string, const PlanTensor*> tensors_;
  std::deque<PlanTensor> added_;
  size_t first_ = 1;
  size_t last_ = 0;
  std::vector<PlanStep> before_, body_, behind_;
  std::set<std::string> made_;        // by the loop, block by block
  std::set<std::string> made_later_;  // known after the loop: sums, and what is computed from them
  std::set<std::string> local_;
  std::string refusal_;
};

}  // namespace

std::string make_row_blocks(Plan& plan, const RowBlocksRequest& request) {
  LoopMaker maker(plan, request);
  std::string refusal = maker.run();
  if (refusal.empty()) plan = maker.take();
  return refusal;
}

int64_t rows_of_block(const RowBlocks& loop, const DimValues& sizes) {
  return std::min(loop.rows, Dim(loop.symbol).evaluate(sizes));
}

int64_t row_blocks_of(const RowBlocks& loop, const DimValues& sizes) {
  const int64_t rows = rows_of_block(loop, sizes);
  return ceil_div(Dim(loop.symbol).evaluate(sizes), rows);
}

DimValues sizes_of_row_block(const RowBlocks& loop, const DimValues& sizes, int64_t block) {
  const int64_t rows = rows_of_block(loop, sizes);
  const int64_t all = Dim(loop.symbol).evaluate(sizes);
  DimValues inside = sizes;
  inside[loop.symbol] = std::min(rows, all - block * rows);
  return inside;
}

bool is_sliced(const TensorDecl& decl, const RowBlocks& loop) {
  return decl.shape.rows == Dim(loop.symbol);
}

}  // namespace coda
