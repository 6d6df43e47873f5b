// SPDX-License-Identifier: Apache-2.0
// One switch over storage types for reading and one for writing.
#include "runtime/values.h"

#include <cmath>

#include "coda/error.h"
#include "coda/float16.h"

namespace coda {

std::vector<double> read_values(const TensorView& view) {
  std::vector<double> values;
  values.reserve(static_cast<size_t>(view.size()));
  for (int64_t r = 0; r < view.rows; ++r) {
    for (int64_t c = 0; c < view.cols; ++c) {
      const int64_t at = r * view.row_stride + c;
      switch (view.dtype) {
        case DType::f32: values.push_back(static_cast<const float*>(view.data)[at]); break;
        case DType::f64: values.push_back(static_cast<const double*>(view.data)[at]); break;
        case DType::i32: values.push_back(static_cast<const int32_t*>(view.data)[at]); break;
        case DType::bf16:
          values.push_back(float_from_bf16(static_cast<const uint16_t*>(view.data)[at]));
          break;
        case DType::f16:
          values.push_back(float_from_f16(static_cast<const uint16_t*>(view.data)[at]));
          break;
      }
    }
  }
  return values;
}

void write_values(std::span<const double> values, const TensorView& view) {
  invariant(static_cast<int64_t>(values.size()) == view.size(), "write_values: sizes differ");
  size_t i = 0;
  for (int64_t r = 0; r < view.rows; ++r) {
    for (int64_t c = 0; c < view.cols; ++c, ++i) {
      const int64_t at = r * view.row_stride + c;
      const float rounded = static_cast<float>(values[i]);
      switch (view.dtype) {
        case DType::f32: static_cast<float*>(view.data)[at] = rounded; break;
        case DType::f64: static_cast<double*>(view.data)[at] = values[i]; break;
        case DType::i32:
          static_cast<int32_t*>(view.data)[at] = static_cast<int32_t>(std::lround(values[i]));
          break;
        case DType::bf16: static_cast<uint16_t*>(view.data)[at] = bf16_from_float(rounded); break;
        case DType::f16: static_cast<uint16_t*>(view.data)[at] = f16_from_float(rounded); break;
      }
    }
  }
}

}  // namespace coda
