// SPDX-License-Identifier: Apache-2.0
#include "runtime/check_view.h"

#include "coda/error.h"

namespace coda {

std::string describe(DType dtype, int64_t rows, int64_t cols) {
  return std::string(name_of(dtype)) + " [" + std::to_string(rows) + ", " + std::to_string(cols) +
         "]";
}

void check_view(const std::string& subject, DType dtype, const PhysicalShape& shape,
                const TensorView& view) {
  // Texts are made only where they are needed: kernels check at their first run, too.
  const auto expected = [&] {
    return subject + " is " + describe(dtype, shape.rows, shape.cols) + ", but ";
  };
  if (view.rows != shape.rows || view.cols != shape.cols || view.dtype != dtype)
    throw Error(expected() + describe(view.dtype, view.rows, view.cols) + " was given");
  if (view.rows != 1 && view.row_stride < view.cols) {
    throw Error(expected() + "the rows given are " + std::to_string(view.row_stride) +
                " elements apart, and would overlap");
  }
  if (view.data == nullptr) throw Error(expected() + "the memory given is null");
  const auto address = reinterpret_cast<uintptr_t>(view.data);
  if (address % static_cast<uintptr_t>(size_of(dtype)) != 0) {
    throw Error(expected() + "the memory given starts " +
                std::to_string(address % static_cast<uintptr_t>(size_of(dtype))) +
                " bytes behind a multiple of an element's " + std::to_string(size_of(dtype)) +
                ". Remedy: let it start at a whole element");
  }
}

}  // namespace coda
