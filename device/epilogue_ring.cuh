// SPDX-License-Identifier: Apache-2.0
// The ring of staging buffers between an epilogue and memory. One group of planes serves one 64x64
// sub-tile: a load warp fills it while the mainloop runs, consumer warps transform it in place, a
// store warp sends it away and hands it back. So a consumer waits for a store only when the ring is
// full, and loads run ahead by as many sub-tiles as the ring holds.
// Protocol of a group: free (load warp) -> full (consumers) -> staged (store warp) -> free. Without
// loads, consumers take a free group themselves.
// Invariant: all roles visit the groups in the same order. A consumer's earlier turn at the same
// group is complete before its next (an order barrier between ping-pong warpgroups, an even ring
// between cooperative ones), so a phase's parity is never ambiguous.
#pragma once

#include "device/barrier.cuh"
#include "device/matrix_move.cuh"
#include "device/pipeline.cuh"
#include "device/shared_layout.cuh"
#include "device/tma.cuh"

namespace coda::device {

// An Epilogue provides
//   kShape                                      what it moves for each sub-tile
//   Arguments                                   descriptors and scalars
//   load(arguments, plane, destination, origin, barrier)   one plane by TMA
//   store(arguments, plane, origin, source)                one plane by TMA
//   apply(arguments, accumulators, loaded, stored)         one 16x16 chunk, in registers
template <GemmConfig kConfig, class Epilogue>
struct EpilogueRing {
  static constexpr EpilogueShape kShape = Epilogue::kShape;
  static constexpr SharedLayout kShared = shared_layout(kConfig, kShape);
  static constexpr u32 kGroups = kShared.groups;
  static constexpr u32 kSubTiles = sub_tiles(kConfig);
  static constexpr u32 kGroupBytes = larger(1, kShape.planes()) * kSubTileBytes;
  static constexpr u32 kSharers =
      kConfig.schedule == Schedule::cooperative ? kConsumerWarpgroups : 1;
  // Sub-tiles that a consumer writes before it fences once for all of them, because a fence waits
  // for the writes: the whole tile if the ring holds it; else, or with loads, each is passed on at
  // once to make room for the next.
  static constexpr u32 kOwn = sub_tiles_per_warpgroup(kConfig);
  static constexpr u32 kBatch = kShape.loads == 0 && kGroups >= kSubTiles ? kOwn : 1;
  static_assert(kShared.fits(), "the epilogue's staging does not fit beside the mainloop's stages");
  static_assert(kSharers == 1 || kGroups % 2 == 0);

  using State = PipelineState<kGroups>;
  using Accumulators = float[kConfig.blocks_m()][kConfig.tile_n / 2];
  using Arguments = typename Epilogue::Arguments;

  u32 groups;  // shared-memory addresses
  u32 full;
  u32 staged;
  u32 free;

  __device__ __forceinline__ void init_barriers() const {
    for (u32 group = 0; group < kGroups; ++group) {
      barrier_init(full + group * kBarrierBytes, 1);
      barrier_init(staged + group * kBarrierBytes, kWarpgroupSize / kWarpSize);
      barrier_init(free + group * kBarrierBytes, 1);
    }
  }

  // One thread of the load warp: all sub-tiles of one tile.
  __device__ __forceinline__ void load(const Arguments& arguments, TileCoord tile,
                                       State& state) const {
    for (u32 index = 0; index < kSubTiles; ++index) {
      const u32 barrier = full + state.stage * kBarrierBytes;
      barrier_wait(free + state.stage * kBarrierBytes, state.phase ^ 1);
      const TileCoord origin = sub_tile_origin(kConfig, tile, index);
      barrier_arrive_expect(barrier, kShape.loads * kSubTileBytes);
#pragma unroll
      for (u32 plane = 0; plane < kShape.loads; ++plane) {
        Epilogue::load(arguments, plane, plane_address(state.stage, plane), origin, barrier);
      }
      state.advance();
    }
  }

  // Groups whose stores may still be reading shared memory.
  struct Unreleased {
    State oldest;
    u32 count = 0;
  };
  // How many are left reading while more are staged: enough to keep several stores in flight, few
  // enough that loads find free groups.
  static constexpr u32 kInFlight = larger(1, kGroups / 2);

  // One thread of the store warp: all sub-tiles of one tile. Groups go back as their stores have
  // read them, or when there is nothing else to do; `drain` returns the last.
  __device__ __forceinline__ void store(const Arguments& arguments, TileCoord tile, State& state,
                                        Unreleased& unreleased) const {
    for (u32 index = 0; index < kSubTiles; ++index) {
      const u32 barrier = staged + state.stage * kBarrierBytes;
      if (!barrier_test(barrier, state.phase)) drain(unreleased);
      barrier_wait(barrier, state.phase);
      const TileCoord origin = sub_tile_origin(kConfig, tile, index);
#pragma unroll
      for (u32 plane = 0; plane < kShape.stores; ++plane) {
        Epilogue::store(arguments, plane, origin, plane_address(state.stage, plane));
      }
      store_commit();
      state.advance();
      if (unreleased.count == kInFlight) {
        store_wait_read<kInFlight>();
        release(unreleased);
      }
      ++unreleased.count;
    }
  }

  __device__ __forceinline__ void drain(Unreleased& unreleased) const {
    if (unreleased.count == 0) return;
    store_wait_read<0>();
    while (unreleased.count != 0) release(unreleased);
  }

  // One consumer warpgroup: its sub-tiles of one tile. `state` stands at the tile's first sub-tile
  // for this warpgroup and ends at the next tile's. `waited` runs when the last group has been
  // received.
  template <class Waited>
  __device__ __forceinline__ void transform(const Arguments& arguments, u32 thread, State& state,
                                            const Accumulators& accumulators, Waited waited) const {
    constexpr u32 kColumns = kConfig.tile_n / kSubTileColumns;
#pragma unroll
    for (u32 first = 0; first < kOwn; first += kBatch) {
      State arriving = state;
#pragma unroll
      for (u32 own = first; own < first + kBatch; ++own) {
        receive(state);
        if (own == kOwn - 1) waited();
#pragma unroll
        for (u32 chunk = 0; chunk < kChunks; ++chunk) {
          const u32 column = (own % kColumns) * kSubTileColumns + chunk * kChunkColumns;
          transform_chunk(arguments,
                          groups + state.stage * kGroupBytes + chunk_offset(thread, chunk),
                          accumulators[own / kColumns] + column / 2);
        }
        state.advance_by(kSharers);
      }
      fence_async_proxy();
      __syncwarp();
#pragma unroll
      for (u32 own = 0; own < kBatch; ++own) {
        if (thread % kWarpSize == 0) barrier_arrive(staged + arriving.stage * kBarrierBytes);
        arriving.advance_by(kSharers);
      }
    }
  }

 private:
  __device__ __forceinline__ void release(Unreleased& unreleased) const {
    barrier_arrive(free + unreleased.oldest.stage * kBarrierBytes);
    unreleased.oldest.advance();
    --unreleased.count;
  }

  // Without loads the group comes straight from the store warp.
  __device__ __forceinline__ void receive(const State& state) const {
    if constexpr (kShape.loads != 0) {
      barrier_wait(full + state.stage * kBarrierBytes, state.phase);
    } else {
      barrier_wait(free + state.stage * kBarrierBytes, state.phase ^ 1);
    }
  }

  __device__ __forceinline__ u32 plane_address(u32 group, u32 plane) const {
    return groups + group * kGroupBytes + plane * kSubTileBytes;
  }

  // A warp reads and writes only its own 16 rows, so the plane is transformed in place.
  __device__ __forceinline__ static void transform_chunk(const Arguments& arguments, u32 address,
                                                         const float* accumulators) {
    u32 loaded[larger(1, kShape.loads)][4];
    u32 stored[larger(1, kShape.stores)][4];
    if constexpr (kShape.loads != 0) {
#pragma unroll
      for (u32 plane = 0; plane < kShape.loads; ++plane) {
        load_matrices(loaded[plane], address + plane * kSubTileBytes);
      }
    }
    Epilogue::apply(arguments, accumulators, loaded, stored);
#pragma unroll
    for (u32 plane = 0; plane < kShape.stores; ++plane) {
      store_matrices(address + plane * kSubTileBytes, stored[plane]);
    }
  }
};

}  // namespace coda::device
