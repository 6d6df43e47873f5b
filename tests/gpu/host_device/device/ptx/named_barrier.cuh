// SPDX-License-Identifier: Apache-2.0
// device/ptx/named_barrier.cuh on a CPU.
#pragma once

#include "device/config.cuh"
#include "device/ptx/lanes.cuh"

namespace coda::device {

enum class NamedBarrier : u32 { mainloop_order = 1, epilogue_order = 3, warpgroup = 5 };

inline void named_barrier_sync(u32 id, u32 threads) { host_cta().named[id].wait(threads); }
inline void named_barrier_arrive(u32 id, u32 threads) { host_cta().named[id].arrive(threads); }

inline void synchronize_warpgroup() {
  const u32 consumer = thread_index() / kWarpgroupSize - 1;
  named_barrier_sync(static_cast<u32>(NamedBarrier::warpgroup) + consumer, kWarpgroupSize);
}

template <NamedBarrier kSection>
struct Turn {
  static constexpr u32 kFirst = static_cast<u32>(kSection);
  static constexpr u32 kParticipants = kConsumerWarpgroups * kWarpgroupSize;

  static void open(u32 warpgroup) {
    if (warpgroup == 1) named_barrier_arrive(kFirst, kParticipants);
  }
  static void enter(u32 warpgroup) { named_barrier_sync(kFirst + warpgroup, kParticipants); }
  static void leave(u32 warpgroup) {
    named_barrier_arrive(kFirst + (warpgroup ^ 1), kParticipants);
  }
};

}  // namespace coda::device
