// SPDX-License-Identifier: Apache-2.0
// 16 bytes is the alignment of a GPU's copy engine.
#include "runtime/row_stride.h"

#include "base/rounding.h"

namespace coda {

int64_t row_stride(const PlanTensor& tensor, const PhysicalShape& shape) {
  const bool is_loops = tensor.role == TensorRole::temporary && tensor.loop >= 0;
  const bool is_matrix = shape.rows > 1 && shape.cols > 1;
  if (!is_loops || !is_matrix || size_of(tensor.decl.dtype) != 2) return shape.cols;
  return round_up(shape.cols, 8);
}

}  // namespace coda
