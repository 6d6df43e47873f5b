// SPDX-License-Identifier: Apache-2.0
// Makes a plan from a single program, so that hand-written programs run like compiled ones.
#include "coda/plan.h"

#include "program/step_table.h"

namespace coda {

Plan one_step_plan(const Program& program) {
  Plan plan;
  plan.forward.push_back({.name = program.name,
                          .role = program::has_product(program) ? StepRole::gemm : StepRole::tile,
                          .work = program,
                          .reasons = {}});
  const std::vector<StepTensor> uses = step_tensors(plan.forward.front());
  for (size_t i = 0; i < program.tensors.size(); ++i) {
    plan.tensors.push_back({.decl = program.tensors[i],
                            .role = uses[i].written ? TensorRole::output : TensorRole::input});
  }
  return plan;
}

}  // namespace coda
