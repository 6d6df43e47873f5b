// SPDX-License-Identifier: Apache-2.0
// Lists the programs and calls that a session of a plan will prepare, with their sizes, so that a
// backend can compile them in parallel or ahead of time.
#pragma once

#include <vector>

#include "coda/backend.h"

namespace coda {

// The plan must outlive the result. A program in a loop over row blocks has the block's number of
// rows; if the last block is shorter, the program is listed again with that size.
std::vector<AnnouncedProgram> programs_of(const Plan& plan, const DimValues& sizes);
std::vector<AnnouncedCall> calls_of(const Plan& plan, const DimValues& sizes);

}  // namespace coda
