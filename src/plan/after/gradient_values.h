// SPDX-License-Identifier: Apache-2.0
// Finds the tensors that hold gradients. The phase is not enough, because the backward also
// recomputes forward values. Instead, values are followed from the inputs that only the backward
// gets (a loss's upstream gradient) through all programs.
#pragma once

#include <set>
#include <string>

#include "plan/after/plan_operands.h"

namespace coda {

// Gradients as owners in a version (Operand::version), or with -1 those that the caller gives.
// `begins`: tensors that count as gradients from where a program without a GEMM writes them,
// whatever they are computed from: gradients of a loss's logits, which the forward may compute. If
// the backward has no input of its own, everything that it writes counts.
std::set<Operand> find_gradients(const PlanOperands& operands, const Plan& plan,
                                 const std::set<std::string>& begins);

}  // namespace coda
