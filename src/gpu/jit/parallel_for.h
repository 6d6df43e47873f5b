// SPDX-License-Identifier: Apache-2.0
// Runs independent jobs on threads: compilations, which take tenths of a second each.
#pragma once

#include <cstddef>
#include <functional>

namespace coda::gpu {

// Calls job(0) ... job(count - 1), at most `threads` of them concurrently (0: one per hardware
// thread), and returns when all are done. If jobs throw, rethrows the exception of the job with the
// lowest index; jobs that have not started by then are skipped.
void parallel_for(size_t count, unsigned threads, const std::function<void(size_t)>& job);

}  // namespace coda::gpu
