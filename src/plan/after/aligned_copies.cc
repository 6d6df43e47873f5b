// SPDX-License-Identifier: Apache-2.0
// The copy is stored where the output is, by the same program.
#include "plan/after/aligned_copies.h"

#include <algorithm>
#include <optional>

#include "program/step_table.h"

namespace coda {
namespace {

constexpr int64_t kAlignedElements = 8;  // 16 bytes

bool is_ragged_output(const Plan& plan, const PlanTensor& t, const DimValues& sizes) {
  const bool is_viewed = std::ranges::any_of(
      plan.tensors, [&](const PlanTensor& other) { return other.view_of == t.decl.name; });
  return t.role == TensorRole::output && t.view_of.empty() && !is_viewed &&
         t.decl.kind == TensorKind::dense && size_of(t.decl.dtype) == 2 &&
         t.decl.shape.cols.evaluate(sizes) % kAlignedElements != 0;
}

// The steps of one loop that write and read a tensor.
struct LoopUses {
  int loop = -1;
  PlanStep* writer = nullptr;
  std::vector<PlanStep*> readers;
};

// None unless a single step writes the tensor, in a loop, and later steps of that loop read it.
std::optional<LoopUses> uses_of(Plan& plan, const std::string& name) {
  LoopUses uses;
  for (PlanStep& step : plan.forward) {
    for (const StepTensor& t : step_tensors(step)) {
      if (t.name != name) continue;
      if (t.written && (t.read || uses.writer != nullptr || step.loop < 0)) return std::nullopt;
      if (t.written) {
        uses.writer = &step;
        uses.loop = step.loop;
      } else if (uses.writer != nullptr && step.loop == uses.loop) {
        uses.readers.push_back(&step);
      }
    }
  }
  if (uses.readers.empty()) return std::nullopt;
  return uses;
}

int index_of(const Program& program, const std::string& name) {
  const auto found = std::ranges::find(program.tensors, name, &TensorDecl::name);
  return found == program.tensors.end() ? -1 : static_cast<int>(found - program.tensors.begin());
}

void read_instead(PlanStep& step, const std::string& name, const std::string& copy) {
  const auto rename = [&](Program& program) {
    const int t = index_of(program, name);
    if (t >= 0) program.tensors[static_cast<size_t>(t)].name = copy;
  };
  rename(std::get<Program>(step.work));
  if (step.later) rename(*step.later);
}

// Whether the program stores the whole tensor once; then it stores the copy too.
bool store_also(Program& program, const std::string& name, const TensorDecl& copy) {
  const int tensor = index_of(program, name);
  const auto stores = [&](const Step& s) { return program::is_effect(s) && s.tensor() == tensor; };
  if (std::ranges::count_if(program.steps, stores) != 1) return false;
  Step store = *std::ranges::find_if(program.steps, stores);
  auto* const tile = std::get_if<steps::StoreTile>(&store.work);
  if (tile == nullptr) return false;
  tile->tensor = static_cast<int>(program.tensors.size());
  program.tensors.push_back(copy);
  program.steps.push_back(std::move(store));
  return true;
}

}  // namespace

void add_aligned_copies(Plan& plan, const DimValues& sizes) {
  const size_t count = plan.tensors.size();
  for (size_t i = 0; i < count; ++i) {
    if (!is_ragged_output(plan, plan.tensors[i], sizes)) continue;
    const std::string name = plan.tensors[i].decl.name;
    const std::optional<LoopUses> uses = uses_of(plan, name);
    const auto is_program = [](const PlanStep* step) {
      return std::holds_alternative<Program>(step->work);
    };
    if (!uses || uses->writer->later || !is_program(uses->writer) ||
        !std::ranges::all_of(uses->readers, is_program))
      continue;
    TensorDecl copy = plan.tensors[i].decl;
    copy.name += ".aligned";
    if (!store_also(std::get<Program>(uses->writer->work), name, copy)) continue;
    for (PlanStep* reader : uses->readers) read_instead(*reader, name, copy.name);
    plan.tensors.push_back({.decl = copy, .loop = uses->loop});
  }
}

}  // namespace coda
