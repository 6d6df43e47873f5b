// SPDX-License-Identifier: Apache-2.0
// Copies a host matrix to another of the same type and size, row by row; the gaps between rows are
// not written.
#pragma once

#include <cstring>

#include "coda/tensor.h"

namespace coda {

inline void copy_matrix(const TensorView& from, const TensorView& to) {
  const auto row_bytes = static_cast<size_t>(from.cols * size_of(from.dtype));
  for (int64_t row = 0; row < from.rows; ++row) {
    std::memcpy(
        static_cast<std::byte*>(to.data) + row * to.row_stride * size_of(to.dtype),
        static_cast<const std::byte*>(from.data) + row * from.row_stride * size_of(from.dtype),
        row_bytes);
  }
}

}  // namespace coda
