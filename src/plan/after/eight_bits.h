// SPDX-License-Identifier: Apache-2.0
// The pass that moves the GEMMs of a plan to 8 bits (include/coda/eight_bits.h). It has no
// model-specific code: it takes every GEMM whose operands can be in 8 bits.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "coda/compile_request.h"
#include "coda/plan.h"

namespace coda {

struct EightBitPlan {
  Plan plan;
  // The initial value of each scale. Those of gradients are large; otherwise gradients would become
  // 0 in 8 bits before their magnitudes are known.
  std::vector<float> first_scales;
};

// Moves every GEMM of two bf16 operands to 8 bits if its contraction is a multiple of 16. Operands
// are stored with the contraction along their rows, as tensor cores require for 8 bits; a tensor
// that is read in both orders is stored in both. The segments of one GEMM share a scale on each
// side. GEMMs that cannot be in 8 bits stay as they are, and so do the GEMMs of a loss's logits
// that `which` excludes and those that read or write a tensor of `except` (parameters and their
// gradients). A note of the plan gives the reasons.
EightBitPlan with_eight_bit_products(const Plan& plan, const DimValues& sizes, EightBits which,
                                     const std::set<std::string>& except = {});

}  // namespace coda
