// SPDX-License-Identifier: Apache-2.0
// Follows the layout that a session uses, so that the announced kernels are the ones it prepares.
#include "runtime/plan_programs.h"

#include <set>

#include "plan/after/row_blocks.h"
#include "runtime/row_stride.h"

namespace coda {
namespace {

// Row strides as a session allocates tensors; tensors of the caller are dense.
AnnouncedProgram announced(const Program& program, const Plan& plan, const DimValues& sizes) {
  AnnouncedProgram result{&program, sizes};
  bool is_dense = true;
  bool are_views_dense = true;
  for (const TensorDecl& decl : program.tensors) {
    const PhysicalShape shape = physical_shape(decl, sizes);
    const PlanTensor* owner = &plan.tensor(decl.name);
    const bool is_view = !owner->view_of.empty();
    bool is_turned = false;
    for (; !owner->view_of.empty(); owner = &plan.tensor(owner->view_of))
      is_turned |= owner->transposed;
    const bool has_own = is_turned || shape.rows == 1;
    result.row_strides.push_back(has_own ? shape.cols
                                         : row_stride(*owner, physical_shape(owner->decl, sizes)));
    if (result.row_strides.back() == shape.cols) continue;
    is_dense = false;
    are_views_dense &= !is_view;
  }
  result.owns_padding = !is_dense && are_views_dense;
  if (is_dense) result.row_strides.clear();
  return result;
}

}  // namespace

std::vector<AnnouncedProgram> programs_of(const Plan& plan, const DimValues& sizes) {
  std::vector<AnnouncedProgram> programs;
  for (const auto* steps : {&plan.forward, &plan.backward}) {
    for (const PlanStep& step : *steps) {
      std::set<DimValues> seen{sizes};
      if (step.loop >= 0) {
        const RowBlocks& loop = plan.loops[static_cast<size_t>(step.loop)];
        seen = {sizes_of_row_block(loop, sizes, 0),
                sizes_of_row_block(loop, sizes, row_blocks_of(loop, sizes) - 1)};
      }
      for (const DimValues& values : seen) {
        if (const auto* program = std::get_if<Program>(&step.work))
          programs.push_back(announced(*program, plan, values));
        if (step.later) programs.push_back(announced(*step.later, plan, values));
      }
    }
  }
  return programs;
}

std::vector<AnnouncedCall> calls_of(const Plan& plan, const DimValues& sizes) {
  std::vector<AnnouncedCall> calls;
  for (const auto* steps : {&plan.forward, &plan.backward}) {
    for (const PlanStep& step : *steps) {
      const auto* call = std::get_if<OpaqueCall>(&step.work);
      if (call == nullptr) continue;
      calls.push_back({call, {}, sizes});
      for (const auto* names : {&call->inputs, &call->outputs})
        for (const std::string& name : *names)
          calls.back().tensors.push_back(plan.tensor(name).decl);
    }
  }
  return calls;
}

}  // namespace coda
