// SPDX-License-Identifier: Apache-2.0
// From two huge pages on, a buffer starts at one.
#include "base/aligned_buffer.h"

#include <sys/mman.h>

#include <algorithm>

#include "base/memory_error.h"

namespace coda {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;

}  // namespace

AlignedBuffer::AlignedBuffer(size_t bytes) : bytes_(bytes) {
  const size_t alignment = bytes >= 2 * kHugePage ? kHugePage : kCacheLine;
  const size_t rounded = (std::max(bytes, alignment) + alignment - 1) / alignment * alignment;
  if (rounded >= bytes) {
    data_.reset(static_cast<std::byte*>(std::aligned_alloc(alignment, rounded)));
  }
  if (data_ == nullptr) throw memory_error("a buffer of a plan's run", static_cast<double>(bytes));
  // Only advice: where the system does not take it, small pages do as well.
  if (alignment == kHugePage) madvise(data_.get(), rounded, MADV_HUGEPAGE);
}

}  // namespace coda
