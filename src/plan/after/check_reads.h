// SPDX-License-Identifier: Apache-2.0
// The last check of a compiled plan: no plan step reads memory that nobody has written. A backend
// would compute with garbage, and no test of its own would notice.
#pragma once

#include <set>
#include <string>

#include "coda/plan.h"

namespace coda {

// Throws InternalError naming the plan step and the tensor, unless every tensor that a step reads
// was completely written before: by the caller (an input, a parameter, or an output in `given`), by
// an earlier step, or, if it is saved, by the forward. Writing a tensor also writes the columns of
// its views, and views that cover a tensor write the tensor.
void check_reads(const Plan& plan, const std::set<std::string>& given, const DimValues& sizes);

}  // namespace coda
