// SPDX-License-Identifier: Apache-2.0
#include "runtime/plan_programs.h"

#include <set>

#include "plan/after/row_chunks.h"

namespace coda {

std::vector<AnnouncedProgram> programs_of(const Plan& plan, const DimValues& sizes) {
  std::vector<AnnouncedProgram> programs;
  for (const auto* steps : {&plan.forward, &plan.backward}) {
    for (const PlanStep& step : *steps) {
      std::set<DimValues> seen{sizes};
      if (step.loop >= 0) {
        const RowChunks& loop = plan.loops[static_cast<size_t>(step.loop)];
        seen = {sizes_of_chunk(loop, sizes, 0),
                sizes_of_chunk(loop, sizes, chunks_of(loop, sizes) - 1)};
      }
      for (const DimValues& values : seen) {
        if (const auto* program = std::get_if<Program>(&step.work))
          programs.push_back({program, values});
        if (step.later) programs.push_back({&*step.later, values});
      }
    }
  }
  return programs;
}

}  // namespace coda
