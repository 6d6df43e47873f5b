// SPDX-License-Identifier: Apache-2.0
// Checks that memory given by a caller has what a tensor needs. Called when memory is bound or
// first seen, not at each run.
#pragma once

#include <string>

#include "coda/backend.h"
#include "coda/tensor.h"

namespace coda {

// "bf16 [128, 64]".
std::string describe(DType dtype, int64_t rows, int64_t cols);

// Describes the problem with a view, to be appended to the tensor's name ("is bf16 [128, 64], but
// ..."), unless it has the shape and type, its rows do not overlap, and its start is aligned to its
// element size. Empty if there is no problem.
std::string why_unfit(DType dtype, const PhysicalShape& shape, const TensorView& view);

}  // namespace coda
