// SPDX-License-Identifier: Apache-2.0
// Whether the memory that a caller gives for a tensor is what the tensor needs. Checked when memory
// is bound or seen for the first time, not at each run.
#pragma once

#include <string>

#include "coda/tensor.h"
#include "runtime/backend.h"

namespace coda {

// "bf16 [128, 64]".
std::string describe(DType dtype, int64_t rows, int64_t cols);

// Throws Error, which begins with `subject` ("tensor 'x'"), unless the view has the shape and type,
// its rows do not overlap, and it starts at a multiple of its elements' size.
void check_view(const std::string& subject, DType dtype, const PhysicalShape& shape,
                const TensorView& view);

}  // namespace coda
