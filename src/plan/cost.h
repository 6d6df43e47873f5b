// SPDX-License-Identifier: Apache-2.0
// Bytes of tensors, as the cost model counts them.
#pragma once

#include "coda/plan.h"

namespace coda {

double bytes_of(const TensorDecl& decl, const DimValues& sizes);

// Of what only the steps of a loop see: for all rows at once, and for one block.
struct LoopBytes {
  double whole = 0;
  double block = 0;
};
LoopBytes loop_bytes(const Plan& plan, int loop, const DimValues& sizes);

}  // namespace coda
