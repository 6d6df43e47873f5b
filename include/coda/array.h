// SPDX-License-Identifier: Apache-2.0
// Row-major float64 arrays of any rank: the values of formulas (coda/formula.h) and of array files
// (coda/array_file.h).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "coda/api.h"

namespace CODA_API coda {

struct Array {
  std::vector<int64_t> shape{};  // empty: a scalar
  std::vector<double> values{};  // as many as the product of the sizes

  friend bool operator==(const Array&, const Array&) = default;
};
using Arrays = std::map<std::string, Array, std::less<>>;  // by name

// "[2, 3]".
std::string shape_text(const Array& array);

}  // namespace CODA_API coda
