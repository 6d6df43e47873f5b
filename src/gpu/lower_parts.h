// SPDX-License-Identifier: Apache-2.0
// Splits a program that does not fit into kernels, and lowers the parts.
#pragma once

#include <optional>
#include <vector>

#include "gpu/codegen/kernel_launch.h"
#include "gpu/legalise/lower_options.h"
#include "gpu/legalise/refusal.h"
#include "gpu/legalise/split_program.h"

namespace coda::gpu {

struct LoweredPart {
  ProgramPart part;
  LowerOptions options;  // for the part's tensors
};

// A part that could not be lowered either.
struct RefusedPart {
  Program program;
  Refusal refusal;
};

struct LoweredParts {
  std::vector<LoweredPart> parts;
  std::vector<ScratchTensor> scratch;
  std::optional<RefusedPart> refused;  // if there are no parts: the last refusal
};

// Empty if no split helps.
LoweredParts split_to_fit(const Program& program, const DimValues& sizes,
                          const LowerOptions& options);

}  // namespace coda::gpu
