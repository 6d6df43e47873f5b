// SPDX-License-Identifier: Apache-2.0
// TMA: one thread moves a box of a tensor between device and shared memory. Loads complete on an
// mbarrier; stores complete in bulk groups of the issuing thread. Coordinates count elements,
// contiguous dimension first. Elements outside the tensor are loaded as zero and never stored, so
// ragged sizes need no code. But along the contiguous dimension a store is clipped only to whole 16
// bytes (measured), so rows are padded to that, and a tensor that continues beyond its segment must
// end the segment at a multiple of 8 elements.
// Invariant: shared memory written by ordinary stores is fenced (`fence_async_proxy`) before TMA
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

// Loads the box to the same offset of every CTA in `mask`; each completes on its own barrier.
__device__ __forceinline__ void tma_load_multicast(SharedAddress destination, const TensorMap* map,
                                                   u32 inner, u32 outer, SharedAddress barrier,
                                                   u16 mask) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(destination.byte),
      "l"(map), "r"(inner), "r"(outer), "r"(barrier.byte), "h"(mask)
      : "memory");
}

// Data that is used once should leave L2 first. Otherwise an epilogue's planes evict operand tiles
// that the next column of tiles needs. (Measured for an epilogue with five planes: a fifth fewer
// bytes from memory, and up to 4 % of the time.)
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

// Waits until all but the newest kPending groups have read their shared memory.
template <u32 kPending>
__device__ __forceinline__ void store_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}

// Waits until all groups are complete: other threads may see what they stored.
__device__ __forceinline__ void store_wait() {
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

// Orders this thread's ordinary shared-memory accesses before later accesses by TMA and wgmma.
__device__ __forceinline__ void fence_async_proxy() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

}  // namespace coda::device
