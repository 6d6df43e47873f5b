// SPDX-License-Identifier: Apache-2.0
// Effects write their tensor; all other steps that name a tensor read it.
#include "coda/plan.h"

#include "program/step_table.h"

namespace coda {
namespace {

std::vector<StepTensor> of_program(const Program& program) {
  std::vector<StepTensor> tensors;
  tensors.reserve(program.tensors.size());
  for (const TensorDecl& decl : program.tensors) tensors.push_back({decl.name});
  for (const Step& step : program.steps) {
    for (const GemmSegment& segment : step.segments()) {
      for (const int t : segment.tensors())
        if (t >= 0) tensors[t].read = true;
    }
    if (step.row_index() >= 0) tensors[step.row_index()].read = true;
    if (step.tensor() < 0) continue;
    StepTensor& tensor = tensors[step.tensor()];
    if (program::is_effect(step)) tensor.written = true;
    if (!program::is_effect(step) || program::is_maximum(step)) tensor.read = true;
  }
  return tensors;
}

std::vector<StepTensor> of_call(const OpaqueCall& call) {
  std::vector<StepTensor> tensors;
  tensors.reserve(call.inputs.size() + call.outputs.size());
  for (const std::string& name : call.inputs) tensors.push_back({name, true, false});
  for (const std::string& name : call.outputs) tensors.push_back({name, false, true});
  return tensors;
}

}  // namespace

std::vector<StepTensor> step_tensors(const PlanStep& step) {
  if (const auto* program = std::get_if<Program>(&step.work)) return of_program(*program);
  return of_call(std::get<OpaqueCall>(step.work));
}

}  // namespace coda
