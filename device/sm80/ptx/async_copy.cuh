// SPDX-License-Identifier: Apache-2.0
// cp.async: each thread copies 16 bytes from global to shared memory without waiting. A thread
// commits its copies in groups, and groups complete in the order of the commits.
// Invariant: a thread reads data that other threads copied only after a wait and a synchronisation.
#pragma once

#include "device/layout/shared_address.cuh"

namespace coda::device::sm80 {

// Copies 16 bytes, or `bytes` bytes and fills the rest of the 16 with zeros. Both addresses are
// multiples of 16.
__device__ __forceinline__ void copy_async(SharedAddress to, u64 from, u32 bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to.byte), "l"(from), "r"(bytes)
               : "memory");
}

// Copies 16 bytes if `is_wanted`. Otherwise writes 16 zeros and does not read global memory. A
// predicate is cheaper than copy_async() with a size of 0: the assembler adds five instructions if
// the size is in a register.
__device__ __forceinline__ void copy_async_or_clear(SharedAddress to, u64 from, bool is_wanted) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.eq.u32 p, %2, 0;\n"
      "cp.async.cg.shared.global [%0], [%1], 16, p;\n}" ::"r"(to.byte),
      "l"(from), "r"(is_wanted ? 1u : 0u)
      : "memory");
}

__device__ __forceinline__ void copy_async(SharedAddress to, u64 from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to.byte), "l"(from) : "memory");
}

__device__ __forceinline__ void commit_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

// Waits until at most the newest kPending groups of this thread are still in flight.
template <u32 kPending>
__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

__device__ __forceinline__ void load_piece(u32 (&words)[4], SharedAddress from) {
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(from.byte)
               : "memory");
}
__device__ __forceinline__ void store_word(SharedAddress to, u32 word) {
  asm volatile("st.shared.u32 [%0], %1;" ::"r"(to.byte), "r"(word) : "memory");
}
__device__ __forceinline__ void store_piece(SharedAddress to, const u32 (&words)[4]) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(to.byte), "r"(words[0]),
               "r"(words[1]), "r"(words[2]), "r"(words[3])
               : "memory");
}

}  // namespace coda::device::sm80
