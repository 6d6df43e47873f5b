// SPDX-License-Identifier: Apache-2.0
// A warp that copies bytes beside a GEMM without being part of it. It shows what moving an
// epilogue's bytes costs by itself, in bandwidth and power, which is the floor for any epilogue
// that must move them. It keeps pace with the tiles, so that the bytes are spread as an epilogue's
// are.
#pragma once

#include "device/layout/shared_layout.cuh"
#include "device/ptx/barrier.cuh"
#include "device/ptx/tma.cuh"

namespace coda::device {

template <GemmConfig kConfig, EpilogueTraits kTraits>
struct Streamer {
  u32 buffers;  // shared-memory addresses
  u32 barriers;
  u32 progress;

  __device__ __forceinline__ void init_barriers() const {
    for (u32 i = 0; i < kStreamBuffers; ++i) barrier_init(barriers + i * kBarrierBytes, 1);
    asm volatile("st.shared.u32 [%0], 0;" ::"r"(progress) : "memory");
  }

  // One consumer thread, as it begins a tile.
  __device__ __forceinline__ void begin_tile() const {
    asm volatile("red.shared.add.u32 [%0], 1;" ::"r"(progress) : "memory");
  }

  // One thread: as many bytes as the epilogue of tile `index` would move. `visit` counts this CTA's
  // tiles, `step` the loads issued so far.
  __device__ __forceinline__ void tile(const u8* source, u8* destination, u64 index, u32 visit,
                                       u32& step) const {
    wait_for_tile(visit);
    constexpr u64 kSubTiles = sub_tiles(kConfig, kTraits);
    for (u32 sub = 0; sub < kSubTiles; ++sub) {
      store_wait_read<0>();
#pragma unroll
      for (u32 plane = 0; plane < kTraits.streamed_loads; ++plane) {
        const u32 buffer = step % kStreamBuffers;
        const u32 barrier = barriers + buffer * kBarrierBytes;
        if (step >= kStreamBuffers) barrier_wait(barrier, (step / kStreamBuffers - 1) & 1);
        const u64 block = (index * kSubTiles + sub) * kTraits.streamed_loads + plane;
        barrier_arrive_expect(barrier, kSubTileBytes);
        bulk_load(buffers + buffer * kSubTileBytes, source + block * kSubTileBytes, kSubTileBytes,
                  barrier);
        ++step;
      }
#pragma unroll
      for (u32 plane = 0; plane < kTraits.streamed_stores; ++plane) {
        const u64 block = (index * kSubTiles + sub) * kTraits.streamed_stores + plane;
        const u32 buffer = plane % kStreamBuffers;
        bulk_store(destination + block * kSubTileBytes, buffers + buffer * kSubTileBytes,
                   kSubTileBytes);
      }
      store_commit();
    }
  }

  __device__ __forceinline__ void finish(u32 step) const {
    for (u32 i = 0; i < kStreamBuffers; ++i) {
      if (step > i) {
        const u32 last = (step - 1 - i) / kStreamBuffers;
        barrier_wait(barriers + (step - 1 - i) % kStreamBuffers * kBarrierBytes, last & 1);
      }
    }
    store_wait_read<0>();
  }

 private:
  __device__ __forceinline__ void wait_for_tile(u32 visit) const {
    u32 begun = 0;
    do {
      asm volatile("ld.volatile.shared.u32 %0, [%1];" : "=r"(begun) : "r"(progress) : "memory");
      if (begun <= visit) __nanosleep(100);
    } while (begun <= visit);
  }
};

}  // namespace coda::device
