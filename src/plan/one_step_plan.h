// SPDX-License-Identifier: Apache-2.0
// A program that a person wrote runs as compiled ones do: as a plan, though of one step, whose
// tensors are all the caller's. What the program stores is an output.
#pragma once

#include "coda/plan.h"

namespace coda {

Plan one_step_plan(const Program& program);

}  // namespace coda
