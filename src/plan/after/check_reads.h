// SPDX-License-Identifier: Apache-2.0
// The last check of a compiled plan: no step reads memory that nobody has written. A backend would
// compute with whatever lies there, and no test of its own would tell.
#pragma once

#include <set>
#include <string>

#include "coda/plan.h"

namespace coda {

// Throws InternalError that names the step and the tensor unless every tensor that a step reads was
// written whole before: by the caller (an input, a parameter, or an output in `given`), by a step
// before it, or, if it is saved, by the forward. A view counts as written where its columns are,
// and a tensor where its views cover it.
void check_reads(const Plan& plan, const std::set<std::string>& given, const DimValues& sizes);

}  // namespace coda
