// SPDX-License-Identifier: Apache-2.0
// Scratch tensors between parts are dense with padded rows.
#include "gpu/lower_parts.h"

#include <algorithm>

#include "base/rounding.h"
#include "gpu/legalise/legalise.h"
#include "gpu/legalise/program_sizes.h"
#include "gpu/lower_whole.h"
#include "program/step_table.h"

namespace coda::gpu {
namespace {

// Padded to rows that threads can move 16 bytes at a time and that TMA can address.
int64_t padded(int64_t columns) { return round_up(columns, 8); }

LowerOptions options_of(const ProgramPart& part, const Program& program, const DimValues& sizes,
                        const LowerOptions& options) {
  const ProgramSizes given(program, sizes, options);
  const ProgramSizes own(part.program, sizes, options);
  LowerOptions result = options;
  result.row_strides.clear();
  for (size_t t = 0; t < part.tensors.size(); ++t) {
    const int tensor = part.tensors[t];
    const bool is_given = tensor < static_cast<int>(program.tensors.size());
    result.row_strides.push_back(is_given ? given.stride(tensor)
                                          : padded(own.stored_columns(static_cast<int>(t))));
  }
  return result;
}

}  // namespace

LoweredParts split_to_fit(const Program& given, const DimValues& sizes,
                          const LowerOptions& options) {
  const Program program = with_uniform_products(given);
  LoweredParts result;
  const auto is_refused = [&](const ProgramPart& part) {
    const std::optional<Refusal> why =
        why_not_whole(part.program, sizes, options_of(part, program, sizes, options));
    if (why && !program::has_product(part.program))
      result.refused = RefusedPart{part.program, *why};
    return why.has_value();
  };
  const std::vector<PartPlan> plans = legalise(program, sizes, is_refused);
  if (plans.empty()) return result;
  SplitProgram split = split_program(program, plans);
  for (const TensorDecl& decl : split.scratch) {
    const int64_t columns = decl.shape.cols.evaluate(sizes);
    result.scratch.push_back(
        {decl.dtype, decl.shape.rows.evaluate(sizes), columns, padded(columns)});
  }
  for (ProgramPart& part : split.parts) {
    LowerOptions own = options_of(part, program, sizes, options);
    result.parts.push_back({std::move(part), std::move(own)});
  }
  return result;
}

}  // namespace coda::gpu
