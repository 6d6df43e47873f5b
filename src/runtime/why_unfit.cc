// SPDX-License-Identifier: Apache-2.0
// Words the first mismatch for a message about the tensor.
#include "runtime/why_unfit.h"

namespace coda {

std::string describe(DType dtype, int64_t rows, int64_t cols) {
  return std::string(name_of(dtype)) + " [" + std::to_string(rows) + ", " + std::to_string(cols) +
         "]";
}

std::string why_unfit(DType dtype, const PhysicalShape& shape, const TensorView& view) {
  const auto expected = [&] { return "is " + describe(dtype, shape.rows, shape.cols) + ", but "; };
  if (view.rows != shape.rows || view.cols != shape.cols || view.dtype != dtype)
    return expected() + describe(view.dtype, view.rows, view.cols) + " was given";
  if (view.rows != 1 && view.row_stride < view.cols) {
    return expected() + "the rows given are " + std::to_string(view.row_stride) +
           " elements apart, and would overlap";
  }
  if (view.data == nullptr) return expected() + "the memory given is null";
  const auto size = static_cast<uintptr_t>(size_of(dtype));
  const auto behind = reinterpret_cast<uintptr_t>(view.data) % size;
  if (behind == 0) return "";
  return expected() + "the memory given starts " + std::to_string(behind) +
         " bytes behind a multiple of an element's " + std::to_string(size) +
         ". Remedy: let it start at a whole element";
}

}  // namespace coda
