// SPDX-License-Identifier: Apache-2.0
// The distance between rows of a plan's tensors.
#pragma once

#include "coda/plan.h"

namespace coda {

// In elements, for a tensor that is not a view. Rows are dense, except for 16-bit matrices that
// only a loop over row blocks uses (the logits): their rows are aligned to 16 bytes, so that a
// GPU's copy engine can access them for any number of columns.
int64_t row_stride(const PlanTensor& tensor, const PhysicalShape& shape);

}  // namespace coda
