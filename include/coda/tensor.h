// SPDX-License-Identifier: Apache-2.0
// A view of a row-major matrix in memory that someone else owns.
#pragma once

#include <cstdint>

#include "coda/dtype.h"

namespace coda {

struct TensorView {
  void* data = nullptr;
  DType dtype = DType::f32;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t row_stride = 0;  // elements between the starts of two rows, >= cols

  int64_t size() const { return rows * cols; }
  bool is_contiguous() const { return row_stride == cols || rows == 1; }
};

inline TensorView dense_view(void* data, DType dtype, int64_t rows, int64_t cols) {
  return {data, dtype, rows, cols, cols};
}

}  // namespace coda
