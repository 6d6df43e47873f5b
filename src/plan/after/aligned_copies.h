// SPDX-License-Identifier: Apache-2.0
// Aligned copies of outputs that a loop over rows reads again.
#pragma once

#include "coda/plan.h"

namespace coda {

// Memory of the caller is dense. If its rows do not begin at multiples of 16 bytes (the logits of
// GPT-2 have 50257 columns of two bytes), a GPU's copy engine cannot access it, and kernels load
// single elements. So the loop that makes such a matrix also stores a copy with aligned rows
// (runtime/row_stride.h), and its steps read the copy.
void add_aligned_copies(Plan& plan, const DimValues& sizes);

}  // namespace coda
