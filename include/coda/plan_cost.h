// SPDX-License-Identifier: Apache-2.0
// The predicted cost of a plan, by the same cost model that chose it, and a plan as text.
#pragma once

#include <string>

#include "coda/api.h"
#include "coda/plan.h"
#include "coda/rates.h"

namespace CODA_API coda {

// The predicted cost of one plan step.
struct StepCost {
  double flops = 0;
  double bytes = 0;    // moved through memory: loads, stores, partials
  double seconds = 0;  // predicted
};
StepCost cost_of(const PlanStep& step, const Plan& plan, const DimValues& sizes,
                 const Rates& rates);
double saved_bytes(const Plan& plan,
                   const DimValues& sizes);  // activations and inputs saved for the backward

// The plan as readable text: tensors, programs, bytes, predicted time, reasons.
std::string text(const Plan& plan, const DimValues& sizes, const Rates& rates);

}  // namespace CODA_API coda
