// SPDX-License-Identifier: Apache-2.0
// Programs with sizes and row strides, as the Hopper backend lowers them.
#pragma once

#include <vector>

#include "coda/plan.h"
#include "hopper/legalise/lower_options.h"
#include "plan_flags.h"

namespace coda::tools {

struct SizedProgram {
  Program program;
  DimValues sizes;
  hopper::LowerOptions options;  // with row strides
};

// `pads`: rows of matrices are padded to 16 bytes; else dense.
SizedProgram sized_program(const Program& program, const DimValues& sizes, bool pads);

// Of a plan; those of a loop over row chunks at the sizes of its first block.
std::vector<SizedProgram> sized_programs(const SizedPlan& plan, bool pads);

// Of the flags' plans: a model's with padded rows.
std::vector<SizedProgram> sized_programs(const ProgramFlags& flags);

}  // namespace coda::tools
