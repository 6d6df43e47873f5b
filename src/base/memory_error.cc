// SPDX-License-Identifier: Apache-2.0
#include "base/memory_error.h"

#include <cstdio>

namespace coda {

std::string bytes_text(double bytes) {
  char amount[32];
  if (bytes < 1e6) {
    std::snprintf(amount, sizeof amount, "%.0f bytes", bytes);
  } else if (bytes < 1e9) {
    std::snprintf(amount, sizeof amount, "%.1f MB", bytes / 1e6);
  } else {
    std::snprintf(amount, sizeof amount, "%.4g GB", bytes / 1e9);
  }
  return amount;
}

MemoryError memory_error(std::string_view what, double bytes) {
  return MemoryError("not enough memory: " + std::string(what) + " needs " + bytes_text(bytes) +
                     " (choose a smaller model, batch or sequence, or give the process more)");
}

}  // namespace coda
