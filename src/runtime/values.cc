// SPDX-License-Identifier: Apache-2.0
// Converts element by element through a switch over the types.
#include "runtime/values.h"

#include "base/stored_element.h"
#include "coda/error.h"

namespace coda {

std::vector<double> read_values(const TensorView& view) {
  std::vector<double> values;
  values.reserve(static_cast<size_t>(view.size()));
  for (int64_t r = 0; r < view.rows; ++r) {
    for (int64_t c = 0; c < view.cols; ++c) {
      values.push_back(read_element(view.dtype, view.data, r * view.row_stride + c));
    }
  }
  return values;
}

void write_values(std::span<const double> values, const TensorView& view) {
  invariant(static_cast<int64_t>(values.size()) == view.size(), "write_values: sizes differ");
  size_t i = 0;
  for (int64_t r = 0; r < view.rows; ++r) {
    for (int64_t c = 0; c < view.cols; ++c, ++i) {
      write_element(view.dtype, view.data, r * view.row_stride + c, values[i]);
    }
  }
}

}  // namespace coda
