// SPDX-License-Identifier: Apache-2.0
// Moves the 8-bit copies of parameters out of a plan. They change only when the parameters do, so
// the code that updates a parameter can store them with it.
#pragma once

#include <vector>

#include "coda/compile.h"
#include "coda/plan.h"

namespace coda {

// Removes from the plan, for each parameter, the first step that loads only that parameter (and
// scales of 8-bit operands). The tensors that it stores become inputs of the plan, and the
// magnitudes that it raises are in kParameterMagnitudes.
std::vector<ParameterCopy> take_parameter_copies(Plan& plan);

}  // namespace coda
