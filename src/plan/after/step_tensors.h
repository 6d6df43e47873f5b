// SPDX-License-Identifier: Apache-2.0
// Which tensors a step of a plan reads and writes: what liveness, bindings and checks need to know
// of it.
#pragma once

#include <string>
#include <vector>

#include "coda/plan.h"

namespace coda {

struct StepTensor {
  std::string name;
  bool read = false;
  bool written = false;
};

// In the order in which a Kernel takes them: a program's tensors, or a call's inputs and then its
// outputs (where one name may stand in both).
std::vector<StepTensor> step_tensors(const PlanStep& step);

}  // namespace coda
