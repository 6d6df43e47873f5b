// SPDX-License-Identifier: Apache-2.0
// The contents of x[...]: slices, numbers, None, an ellipsis and vectors of indices, as in NumPy.
#pragma once

#include <optional>
#include <vector>

#include "formula/functions.h"

namespace coda::formula {

struct Subscript {
  enum class Kind : unsigned char { slice, index, none, ellipsis } kind = Kind::slice;
  std::optional<int64_t> start{};  // of a slice
  std::optional<int64_t> stop{};
  int64_t step = 1;
  Array index{};  // a number, or a vector of them
};

// Two vectors of indices take one element each. Throws Error.
Array element(const Array& x, const std::vector<Subscript>& subscripts);

}  // namespace coda::formula
