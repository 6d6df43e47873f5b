// SPDX-License-Identifier: Apache-2.0
// The parts of a program that no kernel holds as it is, with what each is lowered with.
#pragma once

#include <string>
#include <vector>

#include "hopper/kernel_launch.h"
#include "hopper/split_program.h"

namespace coda::hopper {

struct LoweredPart {
  ProgramPart part;
  LowerOptions options;  // of the part's tensors
};

struct LoweredParts {
  std::vector<LoweredPart> parts;
  std::vector<ScratchTensor> scratch;
};

// None if no split helps.
LoweredParts split_to_fit(const Program& program, const DimValues& sizes,
                          const LowerOptions& options);

}  // namespace coda::hopper
