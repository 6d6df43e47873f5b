// SPDX-License-Identifier: Apache-2.0
// Whether the memory that a caller gives for a tensor is what the tensor needs. Checked when memory
// is bound or seen for the first time, not at each run.
#pragma once

#include <string>

#include "coda/backend.h"
#include "coda/tensor.h"

namespace coda {

// "bf16 [128, 64]".
std::string describe(DType dtype, int64_t rows, int64_t cols);

// What is wrong with a view unless it has the shape and type, its rows do not overlap, and it
// starts at a multiple of its elements' size: "is bf16 [128, 64], but ...", to stand behind the
// tensor's name. Empty if nothing is.
std::string why_unfit(DType dtype, const PhysicalShape& shape, const TensorView& view);

}  // namespace coda
