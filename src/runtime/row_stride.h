// SPDX-License-Identifier: Apache-2.0
// How far apart rows of a plan's tensors lie.
#pragma once

#include "coda/plan.h"

namespace coda {

// In elements, of a tensor that is no view. Rows are dense but for matrices of 16 bits that only a
// loop over row chunks sees, the logits: theirs begin at multiples of 16 bytes, where a GPU's copy
// engine can read and write them however many columns there are.
int64_t row_stride(const PlanTensor& tensor, const PhysicalShape& shape);

}  // namespace coda
