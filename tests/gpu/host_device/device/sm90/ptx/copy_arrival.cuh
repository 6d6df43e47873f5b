// SPDX-License-Identifier: Apache-2.0
// device/sm90/ptx/copy_arrival.cuh on a CPU. The copies arrive when somebody waits for the barrier.
#pragma once

#include "device/sm80/ptx/async_copy.cuh"

namespace coda::device {

inline void barrier_arrive_when_copied(SharedAddress barrier) {
  host_loads().push_back(
      {barrier, [barrier, groups = std::exchange(sm80::host_copies(), sm80::HostCopies(1))] {
         for (const auto& group : groups) {
           for (const sm80::HostCopy& copy : group) sm80::move_copy(copy);
         }
         if (--host_barrier(barrier).pending < 0) std::abort();
         return 0u;
       }});
  ++host_threads->steps;
}

}  // namespace coda::device
