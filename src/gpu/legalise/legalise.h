// SPDX-License-Identifier: Apache-2.0
// Where a program is split that no kernels hold as it is: as little as possible, and of the cuts
// that are legal the one that moves the fewest bytes.
// Invariant: the split depends on the program and how its tensors lie, not on the number of rows or
// on a configuration, so bits do not depend on those.
#pragma once

#include <functional>
#include <vector>

#include "coda/dim.h"
#include "gpu/legalise/split_program.h"

namespace coda::gpu {

// Whether no kernels can be made of a part.
using IsRefused = std::function<bool(const ProgramPart&)>;

// The plan of parts that each can be made; empty if there is none.
std::vector<PartPlan> legalise(const Program& program, const DimValues& sizes,
                               const IsRefused& is_refused);

}  // namespace coda::gpu
