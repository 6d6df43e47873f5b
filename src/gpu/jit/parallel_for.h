// SPDX-License-Identifier: Apache-2.0
// Independent jobs on threads of their own: compilations, which take tenths of a second each.
#pragma once

#include <cstddef>
#include <functional>

namespace coda::gpu {

// Calls job(0) ... job(count - 1), at most `threads` at once (0: as many as the machine has), and
// returns when all are done. Of the jobs that throw, the exception of the first in their order is
// thrown again here; later ones that have not started by then are left out.
void parallel_for(size_t count, unsigned threads, const std::function<void(size_t)>& job);

}  // namespace coda::gpu
