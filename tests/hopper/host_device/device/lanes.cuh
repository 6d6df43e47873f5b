// SPDX-License-Identifier: Apache-2.0
// device/lanes.cuh on a CPU: the test runs the threads of a block in turn, each until its next
// exchange or synchronisation.
#pragma once

#include "device/types.cuh"
#include "host_threads.h"

namespace coda::device {

inline HostThreads* host_threads = nullptr;

inline u32 thread_index() { return host_threads->thread; }
inline u32 block_threads() { return host_threads->threads; }
inline u32 block_index() { return host_threads->block; }
inline u32 grid_blocks() { return host_threads->blocks; }
inline float exchange(float value, u32 mask) { return host_threads->exchange(value, mask); }
inline u32 take_place(u32& counter) { return counter++; }
inline void synchronize_block() { host_threads->synchronize(); }

}  // namespace coda::device
