// SPDX-License-Identifier: Apache-2.0
// Which tensors hold gradients. The backward also makes forward values a second time, so that the
// phase does not tell: values are followed from what the caller gives the backward alone (a loss's
// upstream gradient), through programs value by value.
#pragma once

#include <set>
#include <string>

#include "plan/after/plan_operands.h"

namespace coda {

// Owners as steps leave them (Operand::version), and, with -1, those that the caller gives.
// `begins`: tensors that are gradients from where a program without a product writes them, whatever
// they are made of: those of a loss's logits, which a forward may make. Where nothing is given to
// the backward alone, all that it writes counts.
std::set<Operand> find_gradients(const PlanOperands& operands, const Plan& plan,
                                 const std::set<std::string>& begins);

}  // namespace coda
