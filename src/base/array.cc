// SPDX-License-Identifier: Apache-2.0
#include "coda/array.h"

namespace coda {

std::string shape_text(const Array& array) {
  std::string text;
  for (const int64_t size : array.shape) text += (text.empty() ? "" : ", ") + std::to_string(size);
  return "[" + text + "]";
}

}  // namespace coda
