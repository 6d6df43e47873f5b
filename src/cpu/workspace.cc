// SPDX-License-Identifier: Apache-2.0
// Blocks of scratch memory, on huge pages if available, so that reading packed panels needs few TLB
// entries.
#include "cpu/workspace.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>

#include "base/memory_error.h"
#include "base/rounding.h"

namespace coda::cpu {
namespace {

constexpr int64_t kHugePage = int64_t{2} << 20;

}  // namespace

Workspace::Lease::Lease(Workspace& owner, int64_t bytes)
    : owner_(owner), block_(owner.take(bytes)) {}

Workspace::Lease::~Lease() { owner_.give_back(std::move(block_)); }

void Workspace::reserve(int64_t bytes) { Lease lease(*this, bytes); }

int64_t Workspace::bytes() const {
  const std::lock_guard lock(mutex_);
  int64_t total = lent_;
  for (const auto& block : free_) total += block.bytes;
  return total;
}

Workspace::Lease::Block Workspace::take(int64_t bytes) {
  {
    const std::lock_guard lock(mutex_);
    for (auto it = free_.begin(); it != free_.end(); ++it) {
      if (it->bytes < bytes) continue;
      Lease::Block block = std::move(*it);
      free_.erase(it);
      lent_ += block.bytes;
      return block;
    }
    // If no free block is large enough, the smallest one is replaced by a larger one.
    if (!free_.empty()) {
      free_.erase(std::min_element(free_.begin(), free_.end(),
                                   [](const auto& a, const auto& b) { return a.bytes < b.bytes; }));
    }
  }
  const int64_t alignment = bytes >= kHugePage ? kHugePage : 64;
  const int64_t size = std::max(round_up(bytes, alignment), alignment);
  Lease::Block block{{static_cast<char*>(std::aligned_alloc(static_cast<size_t>(alignment),
                                                            static_cast<size_t>(size))),
                      std::free},
                     size};
  if (block.data == nullptr)
    throw memory_error("the CPU's packed operands", static_cast<double>(size));
  if (alignment == kHugePage) madvise(block.data.get(), static_cast<size_t>(size), MADV_HUGEPAGE);
  const std::lock_guard lock(mutex_);
  lent_ += size;
  return block;
}

void Workspace::give_back(Lease::Block block) {
  const std::lock_guard lock(mutex_);
  lent_ -= block.bytes;
  free_.push_back(std::move(block));
}

}  // namespace coda::cpu
