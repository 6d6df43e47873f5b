// SPDX-License-Identifier: Apache-2.0
// Records the steps that write each owner, so that versions can be looked up.
#include "plan/after/plan_operands.h"

#include "plan/after/row_blocks.h"

namespace coda {

PlanOperands::PlanOperands(const Plan& plan) : plan_(plan) {
  for (const PlanTensor& t : plan.tensors) tensors_[t.decl.name] = &t;
  for (const auto* phase : {&plan.forward, &plan.backward})
    for (const PlanStep& step : *phase) steps_.push_back(&step);
  for (int i = 0; i < count(); ++i) {
    for (const StepTensor& t : step_tensors(step(i)))
      if (t.written) writers_[owner(t.name)].push_back(i);
  }
}

const Program* PlanOperands::program(int i) const { return std::get_if<Program>(&step(i).work); }

const std::string& PlanOperands::owner(const std::string& name) const {
  const PlanTensor* found = tensors_.at(name);
  while (!found->view_of.empty()) found = tensors_.at(found->view_of);
  return found->decl.name;
}

Operand PlanOperands::at(const std::string& tensor, bool transposed, int at) const {
  Operand operand{tensor};
  if (const auto found = writers_.find(owner(tensor)); found != writers_.end()) {
    for (const int writer : found->second)
      if (writer < at) operand.version = writer;
  }
  const int loop = step(at).loop;
  const bool is_row_block =
      loop >= 0 && is_sliced(tensors_.at(tensor)->decl, plan_.loops[static_cast<size_t>(loop)]);
  if (is_row_block && (transposed || is_written_in(operand, loop))) operand.loop = loop;
  return operand;
}

Operand PlanOperands::first_of(const Program& program, const GemmSegment& segment, int step) const {
  return at(program.tensors[static_cast<size_t>(segment.a)].name, segment.transpose_a, step);
}
Operand PlanOperands::second_of(const Program& program, const GemmSegment& segment,
                                int step) const {
  return at(program.tensors[static_cast<size_t>(segment.b)].name, !segment.transpose_b, step);
}

bool PlanOperands::is_written_in(const Operand& operand, int loop) const {
  return operand.version >= 0 && step(operand.version).loop == loop;
}

}  // namespace coda
