// SPDX-License-Identifier: Apache-2.0
// A persistent, warp-specialised GEMM with an epilogue. The first warpgroup's warps are the
// producers (operands, epilogue loads, epilogue stores, and a streamer for measurements), the other
// two warpgroups consume. Read top to bottom: each role is one loop over this CTA's tiles.
// Invariant: every role visits the same tiles in the same order, and every thread reaches the last
// cluster barrier, because peers write into this CTA's shared memory until then.
#pragma once

#include "device/cluster.cuh"
#include "device/epilogue_ring.cuh"
#include "device/mainloop.cuh"
#include "device/named_barrier.cuh"
#include "device/registers.cuh"
#include "device/streamer.cuh"

namespace coda::device {

enum class ProducerWarp : u32 {
  operands = 0,
  epilogue_loads = 1,
  epilogue_stores = 2,
  streamer = 3
};

template <GemmConfig kConfig, class Epilogue>
__device__ __forceinline__ void gemm_kernel(const GemmArguments& gemm,
                                            const typename Epilogue::Arguments& epilogue) {
  using Main = Mainloop<kConfig>;
  using Ring = EpilogueRing<kConfig, Epilogue>;
  constexpr SharedLayout kShared = Ring::kShared;
  constexpr EpilogueShape kShape = Epilogue::kShape;
  constexpr bool kPingPong = kConfig.schedule == Schedule::ping_pong;
  constexpr u32 kSubTiles = sub_tiles(kConfig);
  using MainloopTurn = Turn<NamedBarrier::mainloop_order>;
  using EpilogueTurn = Turn<NamedBarrier::epilogue_order>;

  extern __shared__ __align__(kSharedAlignment) u8 shared_memory[];
  const u32 shared = shared_address(shared_memory);
  const u32 barriers = shared + kShared.barriers;
  const u32 ring_barriers = barriers + 2 * kConfig.stages * kBarrierBytes;
  const Main mainloop{.stages_a = shared + kShared.a,
                      .stages_b = shared + kShared.b,
                      .full = barriers,
                      .empty = barriers + kConfig.stages * kBarrierBytes};
  const Ring ring{.groups = shared + kShared.ring,
                  .full = ring_barriers,
                  .staged = ring_barriers + kShared.groups * kBarrierBytes,
                  .free = ring_barriers + 2 * kShared.groups * kBarrierBytes};
  const Streamer<kConfig, kShape> streamer{
      .buffers = shared + kShared.stream,
      .barriers = ring_barriers + 3 * kShared.groups * kBarrierBytes,
      .progress = shared + kShared.progress};

  const u32 warp = __shfl_sync(~0u, threadIdx.x / kWarpSize, 0);
  const u32 warpgroup = warp / (kWarpgroupSize / kWarpSize);
  const u32 rank = kConfig.cluster_size() == 1 ? 0 : cluster_cta_rank();

  if (threadIdx.x == 0) {
    tma_prefetch_descriptor(&gemm.a);
    tma_prefetch_descriptor(&gemm.b);
    mainloop.init_barriers();
    ring.init_barriers();
    streamer.init_barriers();
    fence_barrier_init();
  }
  if constexpr (kConfig.cluster_size() == 1) {
    __syncthreads();
  } else {
    cluster_sync();
  }

  const TileOrder order = gemm.order;
  const u32 tiles = order.count();
  const u32 first = blockIdx.x / kConfig.cluster_size();
  const u32 stride = gridDim.x / kConfig.cluster_size();
  const auto tile_at = [&](u32 index) {
    return cta_tile(kConfig, order.cluster_tile(index), rank);
  };

  if (warpgroup == 0) {
    release_registers<kConfig.producer_registers>();
    const bool leader = threadIdx.x % kWarpSize == 0;
    if (leader && warp == static_cast<u32>(ProducerWarp::operands)) {
      typename Main::State state;
      for (u32 index = first; index < tiles; index += stride) {
        mainloop.load(gemm, tile_at(index), rank, state);
      }
    } else if (leader && warp == static_cast<u32>(ProducerWarp::epilogue_loads)) {
      if constexpr (kShape.loads != 0) {
        typename Ring::State state;
        for (u32 index = first; index < tiles; index += stride) {
          ring.load(epilogue, tile_at(index), state);
        }
      }
    } else if (leader && warp == static_cast<u32>(ProducerWarp::epilogue_stores)) {
      typename Ring::State state;
      typename Ring::Unreleased unreleased;
      for (u32 index = first; index < tiles; index += stride) {
        ring.store(epilogue, tile_at(index), state, unreleased);
      }
      ring.drain(unreleased);
    } else if (leader && kShape.streams() && warp == static_cast<u32>(ProducerWarp::streamer)) {
      if constexpr (kShape.streams()) {
        u32 visit = 0;
        u32 step = 0;
        for (u32 index = first; index < tiles; index += stride) {
          const u64 cta_tile_index = static_cast<u64>(index) * kConfig.cluster_size() + rank;
          streamer.tile(epilogue.stream_source, epilogue.stream_destination, cta_tile_index,
                        visit++, step);
        }
        streamer.finish(step);
      }
    }
    __syncwarp();
  } else {
    claim_registers<kConfig.consumer_registers>();
    const u32 consumer = warpgroup - 1;
    const u32 thread = threadIdx.x % kWarpgroupSize;
    typename Main::State state;
    typename Ring::State ring_state;
    u32 index = first;
    if constexpr (kPingPong) {
      MainloopTurn::open(consumer);
      EpilogueTurn::open(consumer);
      if (consumer == 1) {
        index += stride;
        state.advance_by(gemm.k_blocks);
        ring_state.advance_by(kSubTiles);
      }
    } else {
      ring_state.advance_by(consumer);
    }
    const u32 own_row = kPingPong ? 0 : consumer * kConfig.warpgroup_m();
    for (; index < tiles; index += kPingPong ? 2 * stride : stride) {
      typename Main::Accumulators accumulators;
      if constexpr (kPingPong) MainloopTurn::enter(consumer);
      if constexpr (kShape.streams()) {
        if (thread == 0 && (kPingPong || consumer == 0)) streamer.begin_tile();
      }
      mainloop.multiply(gemm.k_blocks, own_row, rank, state, accumulators, [&] {
        if constexpr (kPingPong) MainloopTurn::leave(consumer);
      });
      if constexpr (kPingPong) EpilogueTurn::enter(consumer);
      ring.transform(epilogue, thread, ring_state, accumulators, [&] {
        if constexpr (kPingPong) EpilogueTurn::leave(consumer);
      });
      if constexpr (kPingPong) {
        state.advance_by(gemm.k_blocks);
        ring_state.advance_by(kSubTiles);
      }
    }
  }
  if constexpr (kConfig.cluster_size() != 1) cluster_sync();
}

}  // namespace coda::device
