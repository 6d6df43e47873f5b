// SPDX-License-Identifier: Apache-2.0
#include "base/memory_error.h"

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <thread>
#include <vector>

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

void touch_pages(void* memory, size_t bytes) {
  constexpr size_t kPage = 4096;
  constexpr size_t kWorthThreads = size_t{1} << 26;
  if (bytes < kWorthThreads) return;
  const size_t threads = std::clamp<size_t>(std::thread::hardware_concurrency(), 1, 16);
  const size_t share = (bytes / threads / kPage + 1) * kPage;
  std::vector<std::jthread> running;
  for (size_t begin = 0; begin < bytes; begin += share) {
    running.emplace_back([memory, begin, end = std::min(bytes, begin + share)] {
      auto* const first = static_cast<volatile std::byte*>(memory);
      for (size_t at = begin; at < end; at += kPage) first[at] = std::byte{0};
    });
  }
}

MemoryError memory_error(std::string_view what, double bytes) {
  return MemoryError("not enough memory: " + std::string(what) + " needs " + bytes_text(bytes) +
                     " (choose a smaller model, batch or sequence, or give the process more)");
}

}  // namespace coda
