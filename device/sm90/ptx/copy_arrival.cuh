// SPDX-License-Identifier: Apache-2.0
// An mbarrier that waits for cp.async copies of many threads, so that no thread waits for its own.
#pragma once

#include "device/ptx/barrier.cuh"

namespace coda::device {

// The calling thread arrives when all copies that it has started are in shared memory.
__device__ __forceinline__ void barrier_arrive_when_copied(SharedAddress barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier.byte)
               : "memory");
}

}  // namespace coda::device
