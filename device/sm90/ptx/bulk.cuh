// SPDX-License-Identifier: Apache-2.0
// Copies of contiguous bytes by TMA, without a descriptor, and words by which CTAs follow each
// other's progress. Addresses and sizes are multiples of 16 bytes. Loads complete on an mbarrier;
// stores and additions belong to the bulk groups of tma.cuh.
#pragma once

#include "device/sm90/ptx/tma.cuh"

namespace coda::device {

__device__ __forceinline__ void bulk_load(SharedAddress destination, u64 source, u32 bytes,
                                          SharedAddress barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(destination.byte),
      "l"(source), "r"(bytes), "r"(barrier.byte)
      : "memory");
}

__device__ __forceinline__ void bulk_store(u64 destination, SharedAddress source, u32 bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(destination),
               "r"(source.byte), "r"(bytes)
               : "memory");
}

// Adds fp32 numbers, each once.
__device__ __forceinline__ void bulk_add(u64 destination, SharedAddress source, u32 bytes) {
  asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(
                   destination),
               "r"(source.byte), "r"(bytes)
               : "memory");
}

// Publishes what the thread has stored, by TMA too if it has waited for that (store_wait), together
// with a word; and reads such a word. What the thread does after the load, by TMA too, follows what
// was published.
__device__ __forceinline__ void publish_word(u64 address, u32 word) {
  asm volatile("fence.proxy.async.global;\nst.release.gpu.global.u32 [%0], %1;" ::"l"(address),
               "r"(word)
               : "memory");
}
__device__ __forceinline__ u32 published_word(u64 address) {
  u32 word;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];\nfence.proxy.async.global;"
               : "=r"(word)
               : "l"(address)
               : "memory");
  return word;
}

// Adds 1 to a word in memory and returns its old value.
__device__ __forceinline__ u32 take_ticket(u64 address) {
  u32 ticket;
  asm volatile("atom.global.add.u32 %0, [%1], 1;" : "=r"(ticket) : "l"(address) : "memory");
  return ticket;
}

__device__ __forceinline__ void store_shared_piece(SharedAddress address, const float (&x)[4]) {
  asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(address.byte), "f"(x[0]), "f"(x[1]),
               "f"(x[2]), "f"(x[3])
               : "memory");
}

}  // namespace coda::device
