// SPDX-License-Identifier: Apache-2.0
// Allocates large arrays of zeros, and reports failed allocations: what the memory is for, and its
// size.
#pragma once

#include <new>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "coda/error.h"

namespace coda {

// "640 bytes", "12.5 MB", "2.147 GB".
std::string bytes_text(double bytes);

// "not enough memory: the weight 'lm_head.weight' needs 2.1 GB (...)".
MemoryError memory_error(std::string_view what, double bytes);

// Has the system give all pages of memory that was allocated and not yet written, by all threads:
// it zeroes each page at its first write, and one thread would wait for 2 GB/s.
void touch_pages(void* memory, size_t bytes);

// A vector of `size` zeros for `what`; throws memory_error.
template <typename T>
std::vector<T> zeros_for(std::string_view what, size_t size) {
  try {
    std::vector<T> zeros;
    zeros.reserve(size);
    touch_pages(zeros.data(), size * sizeof(T));
    zeros.resize(size);
    return zeros;
  } catch (const std::bad_alloc&) {
    throw memory_error(what, static_cast<double>(size) * sizeof(T));
  } catch (const std::length_error&) {
    throw memory_error(what, static_cast<double>(size) * sizeof(T));
  }
}

}  // namespace coda
