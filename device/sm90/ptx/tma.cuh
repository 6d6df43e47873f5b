// SPDX-License-Identifier: Apache-2.0
// The bulk copy engine (TMA): one thread moves a box of a tensor between device and shared memory.
// Loads complete on an mbarrier; stores complete in bulk groups of the thread that issued them.
// Coordinates count elements, contiguous dimension first. What lies outside the tensor is loaded as
// zero and never stored, which is how ragged sizes need no code; but a store is clipped along the
// contiguous dimension to whole 16 bytes only (measured), so rows are padded to that at least, and
// a tensor that continues beyond its segment must end it at a multiple of 8 elements.
// Invariant: shared memory that ordinary stores wrote is fenced (`fence_async_proxy`) before TMA
// reads it.
#pragma once

#include "device/layout/shared_address.cuh"

namespace coda::device {

__device__ __forceinline__ void tma_prefetch_descriptor(const TensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

__device__ __forceinline__ void tma_load(SharedAddress destination, const TensorMap* map, u32 inner,
                                         u32 outer, SharedAddress barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%2, %3}], [%4];" ::"r"(destination.byte),
      "l"(map), "r"(inner), "r"(outer), "r"(barrier.byte)
      : "memory");
}

// The same box to the same offset of every CTA in `mask`, completing on each one's own barrier.
__device__ __forceinline__ void tma_load_multicast(SharedAddress destination, const TensorMap* map,
                                                   u32 inner, u32 outer, SharedAddress barrier,
                                                   u16 mask) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(destination.byte),
      "l"(map), "r"(inner), "r"(outer), "r"(barrier.byte), "h"(mask)
      : "memory");
}

// What is touched once should leave L2 first: an epilogue's planes would otherwise push out operand
// tiles that the next column of tiles needs (measured: a fifth fewer bytes from memory, and up to 4
// % of the time, where an epilogue moves five planes).
__device__ __forceinline__ u64 evict_first_policy() {
  u64 policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

__device__ __forceinline__ void tma_load_once(SharedAddress destination, const TensorMap* map,
                                              u32 inner, u32 outer, SharedAddress barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".L2::cache_hint [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(destination.byte),
      "l"(map), "r"(inner), "r"(outer), "r"(barrier.byte), "l"(evict_first_policy())
      : "memory");
}

__device__ __forceinline__ void tma_store_once(const TensorMap* map, u32 inner, u32 outer,
                                               SharedAddress source) {
  asm volatile(
      "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group.L2::cache_hint"
      " [%0, {%1, %2}], [%3], %4;" ::"l"(map),
      "r"(inner), "r"(outer), "r"(source.byte), "l"(evict_first_policy())
      : "memory");
}

__device__ __forceinline__ void store_commit() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Until all but the newest kPending groups have read their shared memory, which is then free.
template <u32 kPending>
__device__ __forceinline__ void store_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}

// Orders this thread's ordinary shared-memory accesses before later ones of TMA and wgmma.
__device__ __forceinline__ void fence_async_proxy() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

}  // namespace coda::device
