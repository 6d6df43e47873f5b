// SPDX-License-Identifier: Apache-2.0
// Copies of parameters in 8 bits change when the parameters do, not from run to run: whoever
// updates a parameter has it at hand and can store them with it.
#pragma once

#include <vector>

#include "coda/compile.h"
#include "coda/plan.h"

namespace coda {

// Takes the steps out of the plan that load one parameter whole, beside scales of 8-bit operands,
// and nothing else; of each parameter the first such step. What they store are inputs of the plan
// then, and the largest magnitudes that they raise are in kParameterMagnitudes.
std::vector<ParameterCopy> take_parameter_copies(Plan& plan);

}  // namespace coda
