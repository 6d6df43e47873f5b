// SPDX-License-Identifier: Apache-2.0
// device/sm90/ptx/tma.cuh on a CPU, for 16-bit and 8-bit elements. Loads arrive when they are
// waited for (barrier.cuh); a store reads shared memory until its thread waits for it, or ends.
#pragma once

#include <cstring>

#include "device/layout/fragment.cuh"
#include "device/ptx/barrier.cuh"
#include "host_map.h"

namespace coda::device {

static_assert(sizeof(HostMap) <= sizeof(TensorMap));
inline const HostMap& host_map(const TensorMap* map) {
  return *reinterpret_cast<const HostMap*>(map);
}

// visit(place in memory or null where that is outside, place in shared memory)
template <class Visit>
void visit_box(const HostMap& map, u32 inner, u32 outer, SharedAddress shared, Visit visit) {
  const u32 row_bytes = map.box_columns * map.bytes;
  if (row_bytes != 128 && row_bytes != 64) std::abort();
  if (shared.byte % (8 * row_bytes) != 0) std::abort();  // the swizzle's period
  for (u32 r = 0; r < map.box_rows; ++r) {
    for (u32 c = 0; c < map.box_columns; ++c) {
      const long long row = static_cast<long long>(outer) + r;
      const long long column = static_cast<long long>(inner) + c;
      const bool inside = row < map.rows && column < map.columns;
      const u32 offset = r * row_bytes + map.bytes * c;
      visit(inside ? map.first + (row * map.stride + column) * map.bytes : nullptr,
            shared_byte(shared + (row_bytes == 128 ? swizzle_128b(offset) : swizzle_64b(offset))));
    }
  }
}

inline void tma_prefetch_descriptor(const TensorMap*) {}
inline void tma_load_once(SharedAddress destination, const TensorMap* map, u32 inner, u32 outer,
                          SharedAddress barrier) {
  const u32 bytes = host_map(map).bytes;
  host_loads().push_back({barrier, [=] {
                            visit_box(host_map(map), inner, outer, destination,
                                      [=](const u8* memory, u8* shared) {
                                        std::memset(shared, 0, bytes);
                                        if (memory != nullptr) std::memcpy(shared, memory, bytes);
                                      });
                            return host_map(map).box_rows * host_map(map).box_columns * bytes;
                          }});
  ++host_threads->steps;
}

// Of the one thread that stores: groups that are not yet read, the last one open.
using HostStores = std::vector<std::vector<std::function<void()>>>;
inline HostStores host_stores_of[kMostHostCtas];
inline HostStores& host_stores() { return host_stores_of[host_rank()]; }

inline void tma_store_once(const TensorMap* map, u32 inner, u32 outer, SharedAddress source) {
  if (host_stores().empty()) host_stores().emplace_back();
  const u32 bytes = host_map(map).bytes;
  std::vector<u16> sent;
  visit_box(host_map(map), inner, outer, source,
            [&](const u8*, const u8* shared) { std::memcpy(&sent.emplace_back(), shared, bytes); });
  host_stores().back().push_back([=] {
    size_t i = 0;
    visit_box(host_map(map), inner, outer, source, [&](u8* memory, const u8* shared) {
      // It may read at any moment from its start to here: nobody writes there meanwhile.
      if (std::memcmp(shared, &sent[i], bytes) != 0) std::abort();
      if (memory != nullptr) std::memcpy(memory, &sent[i], bytes);
      ++i;
    });
  });
}
inline void store_commit() {
  if (host_stores().empty()) host_stores().emplace_back();
  host_stores().emplace_back();
}
template <u32 kPending>
void store_wait_read() {
  while (host_stores().size() > kPending + 1) {
    for (const auto& store : host_stores().front()) store();
    host_stores().erase(host_stores().begin());
  }
}
inline void store_wait() { store_wait_read<0>(); }
inline void fence_async_proxy() {}

// As a cluster finds it: NaN in 16 and in 32 bits.
inline void begin_shared_memory() {
  std::memset(host_shared, 0xff, sizeof(host_shared));
  for (std::vector<HostLoad>& loads : host_loads_of) loads.clear();
  for (HostStores& stores : host_stores_of) stores.clear();
}

}  // namespace coda::device
