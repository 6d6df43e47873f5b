// SPDX-License-Identifier: Apache-2.0
// The programs and the calls that a session of a plan prepares, with the sizes that each sees: what
// compiles may compile all of them at once, or ahead.
#pragma once

#include <vector>

#include "coda/backend.h"

namespace coda {

// They are the plan's, which must outlive them. Those of a loop over row chunks see a
// chunk's rows, and are there once more for a last chunk that is shorter.
std::vector<AnnouncedProgram> programs_of(const Plan& plan, const DimValues& sizes);
std::vector<AnnouncedCall> calls_of(const Plan& plan, const DimValues& sizes);

}  // namespace coda
