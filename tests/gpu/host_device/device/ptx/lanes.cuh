// SPDX-License-Identifier: Apache-2.0
// device/ptx/lanes.cuh on a CPU, and CUDA's own names for a thread and its warp: the test runs the
// threads of a block in turn, each until it waits for others.
#pragma once

#include <bit>
#include <cstdlib>
#include <cstring>

#include "device/types.cuh"
#include "host_threads.h"

namespace coda::device {

inline HostThreads* host_threads = nullptr;
inline void (*host_block_end)() = nullptr;  // checks a block that has ended

inline u32 thread_index() { return host_threads->thread; }
inline u32 thread_index_anew() { return thread_index(); }
inline u32 block_threads() { return host_threads->threads; }
inline u32 block_index() { return host_threads->block; }
inline u32 grid_blocks() { return host_threads->blocks; }
inline u32 count_bits(u32 word) { return std::popcount(word); }

// Not for blocks of a cluster, which run together. Before the first block it is 0xff.
template <class Object>
Object& block_memory() {
  static Object* const memory = [] {
    void* const bytes = std::aligned_alloc(16, (sizeof(Object) + 15) / 16 * 16);
    std::memset(bytes, 0xff, sizeof(Object));
    return static_cast<Object*>(bytes);
  }();
  return *memory;
}

// A barrier that is used again and again. Whoever arrives last lets all go on, and may itself be
// the last to do so.
struct HostBarrier {
  u32 arrived = 0;
  u32 turn = 0;

  bool arrive(u32 participants) {
    if (++arrived < participants) return false;
    arrived = 0;
    ++turn;
    ++host_threads->steps;
    return true;
  }
  void wait(u32 participants) {
    const u32 now = turn;
    arrive(participants);
    host_threads->wait_while(&turn, now);
  }
};

inline constexpr u32 kMostHostThreads = 1024;
inline constexpr u32 kMostHostCtas = 8;  // of a cluster, which run together
struct HostCta {
  HostBarrier block;
  HostBarrier warps[kMostHostThreads / 32];
  HostBarrier named[16];  // named_barrier.cuh
  u64 slots[2][kMostHostThreads];
  u32 exchanges[kMostHostThreads];
};
inline HostCta host_ctas[kMostHostCtas];
inline HostBarrier host_cluster;
inline u32 host_rank() { return host_threads->block % host_threads->cluster; }
inline HostCta& host_cta() { return host_ctas[host_rank()]; }

// What a cluster leaves in its barriers is not the next one's.
inline void begin_cluster(HostThreads* threads) {
  host_threads = threads;
  host_cluster = {};
  for (HostCta& cta : host_ctas) cta = {};
}

inline void synchronize_block() { host_cta().block.wait(block_threads()); }
inline void synchronize_warp() {
  const u32 warp = thread_index() / 32;
  const u32 last = block_threads() - warp * 32;
  host_cta().warps[warp].wait(last < 32 ? last : 32);
}

// Calls use(values by lane) when all lanes of the warp have given theirs. Exchanges alternate
// between two sets of slots: a lane writes into a set again only when all lanes have given their
// values of the exchange between, and thus have read this set.
template <class T, class Use>
auto with_lanes(T value, Use use) {
  static_assert(sizeof(T) <= 8);
  u64* const slots = host_cta().slots[host_cta().exchanges[thread_index()]++ % 2];
  std::memcpy(&slots[thread_index()], &value, sizeof(T));
  synchronize_warp();
  return use([first = &slots[thread_index() / 32 * 32]](u32 lane) {
    T of_lane;
    std::memcpy(&of_lane, &first[lane % 32], sizeof(T));
    return of_lane;
  });
}
template <class T>
T value_of_lane(T value, u32 lane) {
  return with_lanes(value, [lane](auto of_lane) { return of_lane(lane); });
}
inline float exchange(float value, u32 mask) {
  return value_of_lane(value, thread_index() % 32 ^ mask);
}

inline u32 exchange(u32 value, u32 mask) {
  return value_of_lane(value, thread_index() % 32 ^ mask);
}

inline u32 sum_of_lanes_before(u32 value) {
  return with_lanes(value, [](auto of_lane) {
    u32 sum = 0;
    for (u32 lane = 0; lane < thread_index() % 32; ++lane) sum += of_lane(lane);
    return sum;
  });
}

inline u32 take_numbers(u32& next, u32 count) {
  const u32 first = next;
  if (thread_index() % 32 == 0) next += count;
  return value_of_lane(first, 0);
}

inline u32 lanes_that(bool is_true) {
  return with_lanes<u32>(is_true ? 1 : 0, [](auto of_lane) {
    u32 lanes = 0;
    for (u32 lane = 0; lane < 32; ++lane) lanes |= of_lane(lane) << lane;
    return lanes;
  });
}

inline u32 lanes_with_same(u32 value) {
  return with_lanes(value, [value](auto of_lane) {
    u32 same = 0;
    for (u32 lane = 0; lane < 32; ++lane) same |= (of_lane(lane) == value ? 1u : 0u) << lane;
    return same;
  });
}

inline u32 largest_of_warp(u32 value) {
  return with_lanes(value, [](auto of_lane) {
    u32 largest = 0;
    for (u32 lane = 0; lane < 32; ++lane)
      largest = of_lane(lane) > largest ? of_lane(lane) : largest;
    return largest;
  });
}

// ---- CUDA's names ----

struct HostIndex {
  u32 (*value)();
  operator u32() const { return value(); }
};
struct HostIndices {
  HostIndex x;
};
inline constexpr HostIndices threadIdx{{&thread_index}};
inline constexpr HostIndices blockIdx{{&block_index}};
inline constexpr HostIndices gridDim{{&grid_blocks}};

inline void __syncwarp() { synchronize_warp(); }
inline void __syncthreads() { synchronize_block(); }
template <class T>
T __shfl_sync(u32, T value, u32 lane) {
  return value_of_lane(value, lane);
}
inline bool __any_sync(u32, bool is_true) { return lanes_that(is_true) != 0; }
inline bool __all_sync(u32, bool is_true) { return lanes_that(is_true) == ~0u; }
inline float __uint_as_float(u32 bits) { return std::bit_cast<float>(bits); }
inline u32 __float_as_uint(float x) { return std::bit_cast<u32>(x); }
// Byte i of the result is byte (selector >> 4 i) of the two words, the first the lower four.
inline u32 __byte_perm(u32 a, u32 b, u32 selector) {
  const u64 bytes = static_cast<u64>(b) << 32 | a;
  u32 result = 0;
  for (u32 i = 0; i < 4; ++i) {
    result |= static_cast<u32>(bytes >> (8 * (selector >> (4 * i) & 7)) & 0xff) << (8 * i);
  }
  return result;
}

}  // namespace coda::device
