// SPDX-License-Identifier: Apache-2.0
#include "sized_programs.h"

#include <algorithm>

namespace coda::tools {
namespace {

std::vector<int64_t> row_strides(const Program& program, const DimValues& sizes, bool pads) {
  std::vector<int64_t> strides;
  for (const TensorDecl& tensor : program.tensors) {
    const int64_t columns = physical_shape(tensor, sizes).cols;
    const bool is_matrix = tensor.kind == TensorKind::dense && !tensor.shape.is_vector();
    strides.push_back(pads && is_matrix ? (columns + 7) / 8 * 8 : columns);
  }
  return strides;
}

}  // namespace

SizedProgram sized_program(const Program& program, const DimValues& sizes, bool pads) {
  SizedProgram result{program, sizes, {}};
  result.options.row_strides = row_strides(program, sizes, pads);
  return result;
}

std::vector<SizedProgram> sized_programs(const SizedPlan& one, bool pads) {
  std::vector<SizedProgram> result;
  for (const auto* phase : {&one.plan.forward, &one.plan.backward}) {
    for (const PlanStep& step : *phase) {
      DimValues sizes = one.sizes;
      if (step.loop >= 0) {
        const RowChunks& loop = one.plan.loops[step.loop];
        sizes[loop.symbol] = std::min(loop.rows, sizes[loop.symbol]);
      }
      if (const Program* program = std::get_if<Program>(&step.work))
        result.push_back(sized_program(*program, sizes, pads));
      if (step.later) result.push_back(sized_program(*step.later, sizes, pads));
    }
  }
  return result;
}

std::vector<SizedProgram> sized_programs(const ProgramFlags& flags) {
  std::vector<SizedProgram> result;
  for (const SizedPlan& plan : flags.plans()) {
    for (SizedProgram& program : sized_programs(plan, flags.is_model()))
      result.push_back(std::move(program));
  }
  return result;
}

}  // namespace coda::tools
