// SPDX-License-Identifier: Apache-2.0
// Distributes tasks 0 .. n to threads. Each thread has its own range of neighbouring tasks and
// takes from its front; a thread without tasks takes from the back of the longest remaining range.
// So neighbours, which share operands, mostly stay on one thread, and no thread waits for a slow
// one.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

namespace coda::cpu {

class TaskRanges {
 public:
  TaskRanges(int64_t tasks, int threads) : ranges_(static_cast<size_t>(threads)) {
    for (int t = 0; t < threads; ++t) {
      ranges_[static_cast<size_t>(t)].left.store(
          join(tasks * t / threads, tasks * (t + 1) / threads), std::memory_order_relaxed);
    }
  }

  // The next task of `thread`, or -1 if no task is left for any thread.
  int64_t take(int thread) {
    std::atomic<uint64_t>& own = ranges_[static_cast<size_t>(thread)].left;
    for (uint64_t left = own.load(); begin(left) < end(left);) {
      if (own.compare_exchange_weak(left, join(begin(left) + 1, end(left)))) return begin(left);
    }
    for (;;) {
      Range* longest = nullptr;
      uint64_t seen = 0;
      for (Range& range : ranges_) {
        const uint64_t left = range.left.load();
        if (end(left) - begin(left) <= (longest != nullptr ? end(seen) - begin(seen) : 0)) continue;
        longest = &range;
        seen = left;
      }
      if (longest == nullptr) return -1;
      if (longest->left.compare_exchange_weak(seen, join(begin(seen), end(seen) - 1)))
        return end(seen) - 1;
    }
  }

 private:
  static constexpr uint64_t kLow = 0xffffffff;
  static uint64_t join(int64_t begin, int64_t end) {
    return static_cast<uint64_t>(begin) << 32 | static_cast<uint64_t>(end);
  }
  static int64_t begin(uint64_t range) { return static_cast<int64_t>(range >> 32); }
  static int64_t end(uint64_t range) { return static_cast<int64_t>(range & kLow); }

  struct alignas(64) Range {
    std::atomic<uint64_t> left{0};
  };
  std::vector<Range> ranges_;
};

}  // namespace coda::cpu
