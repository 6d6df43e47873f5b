// SPDX-License-Identifier: Apache-2.0
// Adds a row partial of squares next to the store of a result.
#include "plan/after/result_squares.h"

#include <algorithm>
#include <optional>

#include "program/step_table.h"

namespace coda {
namespace {

bool is_in_spans(const Plan& plan, const TensorDecl& decl) {
  const Dim& columns = decl.shape.cols;
  const bool is_viewed = std::ranges::any_of(
      plan.tensors, [&](const PlanTensor& t) { return t.view_of == decl.name; });
  return decl.kind == TensorKind::dense && decl.dtype == DType::f32 && columns.is_constant() &&
         columns.constant() % kPartialSpan == 0 && !is_viewed;
}

PlanStep* last_writer(Plan& plan, const std::string& name) {
  PlanStep* last = nullptr;
  for (std::vector<PlanStep>* phase : {&plan.forward, &plan.backward}) {
    for (PlanStep& step : *phase) {
      for (const StepTensor& t : step_tensors(step))
        if (t.written && t.name == name) last = &step;
    }
  }
  return last;
}

// Adds the squares after the program's only store of the whole result; none if there is no such
// store.
std::optional<Program> with_squares(const Program& program, const std::string& result,
                                    const TensorDecl& squares) {
  const auto stores = [&](const Step& s) {
    return program::is_effect(s) && program.tensors[static_cast<size_t>(s.tensor())].name == result;
  };
  const auto store = std::ranges::find_if(program.steps, stores);
  if (std::ranges::count_if(program.steps, stores) != 1 || !program::is_tile_store(*store))
    return std::nullopt;
  Program with = program;
  const int value = store->operands[0];
  const auto next = static_cast<int>(with.steps.size());
  const auto tensor = static_cast<int>(with.tensors.size());
  with.tensors.push_back(squares);
  with.steps.push_back(program::applied(Elementwise::mul, {value, value}, store->shape));
  with.steps.push_back({steps::RowPartial{tensor, PartialKind::sum}, store->shape, {next}});
  return with;
}

}  // namespace

std::set<std::string> store_squares(Plan& plan, const std::map<std::string, std::string>& results) {
  std::set<std::string> stored;
  for (const auto& [result, name] : results) {
    const TensorDecl& decl = plan.tensor(result).decl;
    PlanStep* const step = is_in_spans(plan, decl) ? last_writer(plan, result) : nullptr;
    const auto* program = step == nullptr ? nullptr : std::get_if<Program>(&step->work);
    // A program that adds to a sum loads its tiles and has no registers left for a row's squares.
    if (program == nullptr || step->later) continue;
    const TensorDecl squares{name, decl.shape, DType::f32, TensorKind::row_partial, 1};
    const std::optional<Program> with = with_squares(*program, result, squares);
    if (!with) continue;
    step->work = *with;
    plan.tensors.push_back({squares, TensorRole::output});
    stored.insert(result);
  }
  return stored;
}

}  // namespace coda
