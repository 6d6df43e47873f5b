// SPDX-License-Identifier: Apache-2.0
// mbarrier: a split arrive/wait barrier in shared memory. TMA signals completion on it, and
// producer and consumer warps use it to hand over stages.
// Invariant: a wait specifies the parity of its phase, and no waiter is more than one phase behind.
#pragma once

#include "device/layout/shared_address.cuh"

namespace coda::device {

__device__ __forceinline__ SharedAddress shared_address(const void* pointer) {
  return {static_cast<u32>(__cvta_generic_to_shared(pointer))};
}

__device__ __forceinline__ void barrier_init(SharedAddress barrier, u32 arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier.byte), "r"(arrivals)
               : "memory");
}

// Makes initialised barriers visible to the other CTAs of the cluster and to TMA.
__device__ __forceinline__ void fence_barrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

__device__ __forceinline__ void barrier_arrive(SharedAddress barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier.byte) : "memory");
}

// The address in another CTA of the cluster that corresponds to an address in this CTA.
__device__ __forceinline__ ClusterAddress cluster_address(SharedAddress address, u32 cta_rank) {
  ClusterAddress remote;
  asm("mapa.shared::cluster.u32 %0, %1, %2;"
      : "=r"(remote.byte)
      : "r"(address.byte), "r"(cta_rank));
  return remote;
}

// Arrives at a barrier of any CTA of the cluster. CTA scope is enough: the arrival reports that the
// tensor cores have read a stage and orders no memory access of this thread. A wider scope would
// cost a device-wide fence (MEMBAR.ALL.GPU) for each stage.
__device__ __forceinline__ void barrier_arrive(ClusterAddress barrier) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier.byte) : "memory");
}

// One lane of the warp arrives at the corresponding barrier of a CTA of the cluster. It is one asm
// block because the assembler would otherwise keep lane number and address in registers, which
// consumers lack.
__device__ __forceinline__ void barrier_arrive_by_warp(SharedAddress barrier, u32 cta_rank) {
  asm volatile(
      "{\n"
      ".reg .pred elected;\n"
      ".reg .b32 remote;\n"
      "elect.sync _|elected, 0xffffffff;\n"
      "mapa.shared::cluster.u32 remote, %0, %1;\n"
      "@elected mbarrier.arrive.shared::cluster.b64 _, [remote];\n"
      "}\n" ::"r"(barrier.byte),
      "r"(cta_rank)
      : "memory");
}

// Arrives and adds `bytes` to what TMA must deliver in this phase.
__device__ __forceinline__ void barrier_arrive_expect(SharedAddress barrier, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier.byte),
               "r"(bytes)
               : "memory");
}

// The same at a barrier of any CTA of the cluster. The second function also writes a word to the
// CTA's shared memory, which counts as delivered bytes.
__device__ __forceinline__ void barrier_arrive_expect(ClusterAddress barrier, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cluster.b64 _, [%0], %1;" ::"r"(barrier.byte),
               "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void send_word(ClusterAddress to, u32 word, ClusterAddress barrier) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], %1, [%2];" ::"r"(to.byte),
      "r"(word), "r"(barrier.byte)
      : "memory");
}

__device__ __forceinline__ u32 load_word(SharedAddress address) {
  u32 word;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(word) : "r"(address.byte) : "memory");
  return word;
}

__device__ __forceinline__ bool barrier_test(SharedAddress barrier, u32 parity) {
  u32 complete;
  asm volatile(
      "{\n"
      ".reg .pred complete;\n"
      "mbarrier.test_wait.parity.shared::cta.b64 complete, [%1], %2;\n"
      "selp.u32 %0, 1, 0, complete;\n"
      "}\n"
      : "=r"(complete)
      : "r"(barrier.byte), "r"(parity)
      : "memory");
  return complete != 0;
}

__device__ __forceinline__ void barrier_wait(SharedAddress barrier, u32 parity) {
  u32 complete = 0;
  while (complete == 0) {
    asm volatile(
        "{\n"
        ".reg .pred complete;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 complete, [%1], %2;\n"
        "selp.u32 %0, 1, 0, complete;\n"
        "}\n"
        : "=r"(complete)
        : "r"(barrier.byte), "r"(parity)
        : "memory");
  }
}

}  // namespace coda::device
