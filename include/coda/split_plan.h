// SPDX-License-Identifier: Apache-2.0
// Splits a plan into two plans, one for each phase, for callers that keep saved tensors themselves:
// a framework with its own memory and its own tape, which may run several forwards before a
// backward.
#pragma once

#include "coda/api.h"
#include "coda/plan.h"

namespace CODA_API coda {

// In both plans all steps are in Plan::forward. Saved tensors are outputs of the first plan and
// inputs of the second under the same name; so are results of the forward that the backward reads.
// A gradient that the forward begins and the backward completes in place is an output of both
// plans; the second one reads it before it writes it.
struct SplitPlan {
  Plan forward;
  Plan backward;
};
SplitPlan split_phases(const Plan& plan);

// Joins forward and backward into one phase, for callers that always want the gradients: nothing is
// saved in between.
Plan in_one_phase(const Plan& plan);

}  // namespace CODA_API coda
