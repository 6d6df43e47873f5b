// SPDX-License-Identifier: Apache-2.0
// The two phases of a plan as two plans, for who keeps what the forward saves himself: a framework
// with its own memory and its own tape, in which several forwards may come before a backward.
#pragma once

#include "coda/api.h"
#include "coda/plan.h"

namespace CODA_API coda {

// Both have all of their steps in Plan::forward and no backward. What the forward saves is an
// output of the first and an input of the second, under one name; results of the forward that the
// backward reads are inputs of the second too. A gradient that the forward begins and the backward
// completes in place is an output of both, which the second reads before it writes it.
struct SplitPlan {
  Plan forward;
  Plan backward;
};
SplitPlan split_phases(const Plan& plan);

// Forward and backward as the one phase of a plan, for who wants the gradients when he runs the
// forward: nothing is saved between the two.
Plan in_one_phase(const Plan& plan);

}  // namespace CODA_API coda
