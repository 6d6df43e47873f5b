// SPDX-License-Identifier: Apache-2.0
// device/sm80/ptx/async_copy.cuh on a CPU. The copies of a thread arrive only when this thread
// waits for them, so a kernel that does not wait reads NaN. No block may end before its copies.
#pragma once

#include <cstring>
#include <vector>

#include "device/ptx/barrier.cuh"

namespace coda::device::sm80 {

struct HostCopy {
  SharedAddress to;
  u64 from;
  u32 bytes;
};
// The groups of copies of one thread that have not arrived. The last group is not yet committed.
using HostCopies = std::vector<std::vector<HostCopy>>;
inline HostCopies host_copies_of[kMostHostThreads];  // by thread
inline HostCopies& host_copies() {
  HostCopies& own = host_copies_of[thread_index()];
  if (own.empty()) own.emplace_back();
  return own;
}
inline const bool are_copies_checked = [] {
  host_block_end = [] {
    for (HostCopies& groups : host_copies_of) {
      for (const std::vector<HostCopy>& group : groups)
        if (!group.empty()) std::abort();
      groups.clear();
    }
  };
  return true;
}();

inline void copy_async(SharedAddress to, u64 from, u32 bytes) {
  if (to.byte % 16 != 0 || from % 16 != 0 || bytes > 16) std::abort();
  host_copies().back().push_back({to, from, bytes});
}
inline void copy_async(SharedAddress to, u64 from) { copy_async(to, from, 16); }
// The tests put NaN around the rows of a tensor. So a NaN in a piece means that the kernel copied
// elements outside the tensor.
inline void copy_async_or_clear(SharedAddress to, u64 from, bool is_wanted) {
  constexpr u16 kNaN = 0x7fc0;  // of bf16
  u16 words[8] = {};
  if (is_wanted) std::memcpy(words, reinterpret_cast<const void*>(from), sizeof(words));
  for (const u16 word : words)
    if (word == kNaN) std::abort();
  copy_async(to, from, is_wanted ? 16 : 0);
}
inline void commit_copies() { host_copies().emplace_back(); }
template <u32 kPending>
void wait_for_copies() {
  HostCopies& groups = host_copies();
  while (groups.size() > kPending + 1) {
    for (const HostCopy& copy : groups.front()) {
      u8* const to = shared_byte(copy.to);
      std::memset(to, 0, 16);
      std::memcpy(to, reinterpret_cast<const void*>(copy.from), copy.bytes);
    }
    groups.erase(groups.begin());
  }
}

inline void load_piece(u32 (&words)[4], SharedAddress from) {
  if (from.byte % 16 != 0) std::abort();
  std::memcpy(words, shared_byte(from), 16);
}
inline void store_word(SharedAddress to, u32 word) { std::memcpy(shared_byte(to), &word, 4); }
inline void store_piece(SharedAddress to, const u32 (&words)[4]) {
  if (to.byte % 16 != 0) std::abort();
  std::memcpy(shared_byte(to), words, 16);
}

}  // namespace coda::device::sm80
