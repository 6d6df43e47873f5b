// SPDX-License-Identifier: Apache-2.0
// device/sm90/ptx/bulk.cuh on a CPU. CTAs run one after another, so what a CTA waits for must have
// been published.
#pragma once

#include "device/ptx/memory_moves.cuh"
#include "device/sm90/ptx/tma.cuh"

namespace coda::device {

inline void bulk_load(SharedAddress destination, u64 source, u32 bytes, SharedAddress barrier) {
  if (source % 16 != 0 || bytes % 16 != 0 || destination.byte % 16 != 0) std::abort();
  host_loads().push_back({barrier, [=] {
                            std::memcpy(shared_byte(destination),
                                        reinterpret_cast<const u8*>(source), bytes);
                            return bytes;
                          }});
  ++host_threads->steps;
}

// move(float in memory, float in shared memory), when the thread waits.
template <class Move>
void bulk_move(u64 destination, SharedAddress source, u32 bytes, Move move) {
  if (destination % 16 != 0 || bytes % 16 != 0 || source.byte % 16 != 0) std::abort();
  if (host_stores().empty()) host_stores().emplace_back();
  std::vector<float> sent(bytes / 4);
  std::memcpy(sent.data(), shared_byte(source), bytes);
  host_stores().back().push_back([=] {
    // It may read at any moment from its start to here: nobody writes there meanwhile.
    if (std::memcmp(shared_byte(source), sent.data(), bytes) != 0) std::abort();
    for (u32 i = 0; i < bytes / 4; ++i) move(reinterpret_cast<float*>(destination)[i], sent[i]);
  });
}
inline void bulk_store(u64 destination, SharedAddress source, u32 bytes) {
  bulk_move(destination, source, bytes, [](float& to, float x) { to = x; });
}
inline void bulk_add(u64 destination, SharedAddress source, u32 bytes) {
  bulk_move(destination, source, bytes, [](float& to, float x) { to += x; });
}

inline void publish_word(u64 address, u32 word) {
  if (host_stores().size() > 1) std::abort();  // store_wait() is missing
  *reinterpret_cast<u32*>(address) = word;
}
inline u32 published_word(u64 address) {
  static u32 reads = 0, last = 0;
  const u32 word = *reinterpret_cast<const u32*>(address);
  reads = word == last ? reads + 1 : 0;
  last = word;
  if (reads > 1000000) std::abort();  // nobody is left who could publish another
  return word;
}
inline u32 take_ticket(u64 address) { return (*reinterpret_cast<u32*>(address))++; }

inline void store_shared_piece(SharedAddress address, const float (&x)[4]) {
  std::memcpy(shared_byte(address), x, sizeof(x));
}

}  // namespace coda::device
