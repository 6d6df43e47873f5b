// SPDX-License-Identifier: Apache-2.0
// device/ptx/barrier.cuh on a CPU. Shared memory is an array that starts as NaN; an address is a
// byte of it. What TMA is asked to load arrives when somebody waits for it and not before, so that
// a kernel that does not wait reads NaN.
#pragma once

#include <cstdlib>
#include <functional>
#include <vector>

#include "device/layout/shared_address.cuh"
#include "device/ptx/lanes.cuh"

namespace coda::device {

inline constexpr u32 kHostSharedBytes = 232448;
// Where a kernel's text takes it to begin, and the bytes of each CTA.
alignas(1024) inline u8 shared_memory[kHostSharedBytes];
inline u8 host_shared[kMostHostCtas][kHostSharedBytes];

inline u8* shared_byte(SharedAddress address) {
  if (address.byte >= kHostSharedBytes) std::abort();
  return host_shared[host_rank()] + address.byte;
}
inline SharedAddress shared_address(const void* pointer) {
  return {static_cast<u32>(static_cast<const u8*>(pointer) - shared_memory)};
}

struct HostMBarrier {
  u16 phase : 1;
  u16 count : 15;  // arrivals of a phase
  short pending;
  int bytes;  // that TMA has yet to deliver

  void look() {
    if (pending != 0 || bytes != 0) return;
    phase ^= 1;
    pending = count;
    ++host_threads->steps;
  }
};
static_assert(sizeof(HostMBarrier) == 8);
inline HostMBarrier& host_barrier(SharedAddress address) {
  return *reinterpret_cast<HostMBarrier*>(shared_byte(address));
}

// The CTA's rank stands above the address in its shared memory.
inline constexpr u32 kHostRankBit = 24;
inline ClusterAddress cluster_address(SharedAddress address, u32 cta_rank) {
  return {address.byte | cta_rank << kHostRankBit};
}
inline u8* cluster_byte(ClusterAddress address) {
  const u32 byte = address.byte % (1u << kHostRankBit);
  const u32 rank = address.byte >> kHostRankBit;
  if (byte >= kHostSharedBytes || rank >= host_threads->cluster) std::abort();
  return host_shared[rank] + byte;
}
inline HostMBarrier& host_barrier(ClusterAddress address) {
  return *reinterpret_cast<HostMBarrier*>(cluster_byte(address));
}

struct HostLoad {
  SharedAddress barrier;
  std::function<u32()> move;  // returns its bytes
};
inline std::vector<HostLoad> host_loads_of[kMostHostCtas];
inline std::vector<HostLoad>& host_loads() { return host_loads_of[host_rank()]; }

inline void barrier_init(SharedAddress barrier, u32 arrivals) {
  HostMBarrier& own = host_barrier(barrier);
  own.phase = 0;
  own.count = static_cast<u16>(arrivals & 0x7fff);
  own.pending = static_cast<short>(arrivals);
  own.bytes = 0;
}
inline void fence_barrier_init() {}
template <class Address>
void barrier_arrive(Address barrier) {
  if (--host_barrier(barrier).pending < 0) std::abort();
  host_barrier(barrier).look();
}
template <class Address>
void barrier_arrive_expect(Address barrier, u32 bytes) {
  host_barrier(barrier).bytes += static_cast<int>(bytes);
  barrier_arrive(barrier);
}
inline void barrier_arrive_by_warp(SharedAddress barrier, u32 cta_rank) {
  synchronize_warp();
  if (thread_index() % 32 == 0) barrier_arrive(cluster_address(barrier, cta_rank));
}
inline void send_word(ClusterAddress to, u32 word, ClusterAddress barrier) {
  std::memcpy(cluster_byte(to), &word, sizeof(word));
  host_barrier(barrier).bytes -= static_cast<int>(sizeof(word));
  host_barrier(barrier).look();
}
inline u32 load_word(SharedAddress address) {
  u32 word;
  std::memcpy(&word, shared_byte(address), sizeof(word));
  return word;
}
// Whether the phase of this parity is over.
inline bool barrier_test(SharedAddress barrier, u32 parity) {
  return host_barrier(barrier).phase != parity;
}
inline void barrier_wait(SharedAddress barrier, u32 parity) {
  while (!barrier_test(barrier, parity)) {
    std::vector<HostLoad>& loads = host_loads();
    for (size_t i = 0; i < loads.size(); ++i) {
      if (loads[i].barrier != barrier) continue;
      const HostLoad load = loads[i];
      loads.erase(loads.begin() + static_cast<long>(i--));
      host_barrier(barrier).bytes -= static_cast<int>(load.move());
      host_barrier(barrier).look();
    }
    if (barrier_test(barrier, parity)) return;
    host_threads->wait_while(&host_threads->steps, host_threads->steps);
  }
}

}  // namespace coda::device
