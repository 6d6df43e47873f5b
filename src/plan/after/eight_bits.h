// SPDX-License-Identifier: Apache-2.0
// The pass that makes products in 8 bits of a plan (include/coda/eight_bits.h). It knows no model:
// it takes every product whose operands it can have in 8 bits.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "coda/compile_request.h"
#include "coda/plan.h"

namespace coda {

struct EightBitPlan {
  Plan plan;
  // One a scale: what to begin with. Gradients begin with a large one, or they would be 0 in 8 bits
  // before anything is known of them.
  std::vector<float> first_scales;
};

// Every product of two bf16 operands whose contraction is a multiple of 16 long is made in 8 bits.
// Operands lie with the contraction along their rows, as the tensor cores want 8 bits: a tensor
// that is read in both orders is stored in both. Segments of one product share a scale on each
// side. What cannot be in 8 bits stays as it is, and so do the products of a loss's logits that
// `which` leaves out, and those that read or write a tensor of `except` (parameters and their
// gradients); a note of the plan says why.
EightBitPlan with_eight_bit_products(const Plan& plan, const DimValues& sizes, EightBits which,
                                     const std::set<std::string>& except = {});

}  // namespace coda
