// SPDX-License-Identifier: Apache-2.0
// Threads take job numbers from a counter. If a thread cannot be started, the others do its work.
#include "gpu/jit/parallel_for.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace coda::gpu {

void parallel_for(size_t count, unsigned threads, const std::function<void(size_t)>& job) {
  if (threads == 0) threads = std::max(1U, std::thread::hardware_concurrency());
  const size_t used = std::min<size_t>(threads, count);
  std::atomic<size_t> next{0};
  std::mutex mutex;
  std::exception_ptr failure;
  size_t failed = count;  // lowest index of a failed job; jobs start in the order of indices
  const auto work = [&] {
    for (size_t i = next++; i < count; i = next++) {
      try {
        job(i);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (i < failed) {
          failure = std::current_exception();
          failed = i;
        }
        next = count;
      }
    }
  };
  std::vector<std::thread> workers;
  // If no further thread can be started, the existing ones do all jobs.
  const auto start = [&] {
    try {
      workers.emplace_back(work);
      return true;
    } catch (const std::system_error&) {
      return false;
    }
  };
  while (workers.size() + 1 < used && start()) {
  }
  work();
  for (std::thread& worker : workers) worker.join();
  if (failure != nullptr) std::rethrow_exception(failure);
}

}  // namespace coda::gpu
