// SPDX-License-Identifier: Apache-2.0
// Bytes of tensors, as the cost model counts them.
#pragma once

#include <string>

#include "coda/plan.h"

namespace coda {

double bytes_of(const TensorDecl& decl, const DimValues& sizes);

// Of what only the steps of a loop see: for all rows at once, and for one block.
struct LoopBytes {
  double whole = 0;
  double block = 0;
};
LoopBytes loop_bytes(const Plan& plan, int loop, const DimValues& sizes);

// "blocks of 512 rows of M (8), in 67.11 MB instead of 536.87 MB; sums over all rows: t356".
std::string loop_text(const Plan& plan, int loop, const DimValues& sizes);

}  // namespace coda
