// SPDX-License-Identifier: Apache-2.0
// The parts of a program that no kernel holds as it is, with what each is lowered with.
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
  LowerOptions options;  // of the part's tensors
};

// What could not be made either.
struct RefusedPart {
  Program program;
  Refusal refusal;
};

struct LoweredParts {
  std::vector<LoweredPart> parts;
  std::vector<ScratchTensor> scratch;
  std::optional<RefusedPart> refused;  // where there are no parts: the last one without a product
};

// None if no split helps.
LoweredParts split_to_fit(const Program& program, const DimValues& sizes,
                          const LowerOptions& options);

}  // namespace coda::gpu
