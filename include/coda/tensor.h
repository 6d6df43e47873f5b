// SPDX-License-Identifier: Apache-2.0
// Row-major matrices in memory: TensorView does not own its memory; Tensor does, on the host or in
// the backend's memory. Vectors are matrices of one row or one column.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "coda/api.h"
#include "coda/dtype.h"

namespace CODA_API coda {

class Backend;  // coda/backend.h

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

// Copies of a Tensor share memory, which is freed with the last copy. The backend must outlive the
// tensor.
class Tensor {
 public:
  Tensor() = default;  // no memory, [0, 0]
  // Zero-initialised, without gaps between rows. Throws Error unless both sizes are positive.
  Tensor(DType dtype, int64_t rows, int64_t cols);                    // on the host
  Tensor(DType dtype, int64_t rows, int64_t cols, Backend& backend);  // in the backend's memory
  // Wraps memory that the caller owns, on the host or of the backend.
  explicit Tensor(const TensorView& view) : view_(view) {}
  Tensor(const TensorView& view, Backend& backend);

  const TensorView& view() const { return view_; }
  DType dtype() const { return view_.dtype; }
  int64_t rows() const { return view_.rows; }
  int64_t cols() const { return view_.cols; }
  int64_t size() const { return view_.size(); }
  bool is_on_host() const { return backend_ == nullptr; }

  // Sets all values, row by row, rounded to the tensor's type (to nearest even; i32: to the nearest
  // integer). Throws Error unless there are rows * cols values.
  void set(std::span<const float> values);
  void set(std::span<const int32_t> values);  // i32 only: Error for others
  void fill(float value);
  std::vector<float> floats() const;  // of any type
  std::vector<int32_t> ints() const;  // of i32: Error for others
  // Bitwise copies from and to host memory of the same type and size (else Error).
  void copy_from(const TensorView& host);
  void copy_to(const TensorView& host) const;

 private:
  std::shared_ptr<std::byte> memory_;  // null: not owned
  TensorView view_;
  Backend* backend_ = nullptr;  // null: host memory
};

using TensorMap = std::map<std::string, Tensor, std::less<>>;  // by name

}  // namespace CODA_API coda
