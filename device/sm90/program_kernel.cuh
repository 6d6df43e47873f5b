// SPDX-License-Identifier: Apache-2.0
// A persistent, warp-specialised kernel for the tile spaces of a program, each a GEMM with an
// epilogue. Warps of the first warpgroup are producers (operands, epilogue loads, epilogue stores);
// the other two warpgroups are consumers. Each role is one loop over this CTA's tiles of all spaces
// (tile_scheduler.cuh).
// Invariant: every role visits the same tiles in the same order, and every thread reaches the last
// cluster barrier, because peers write into this CTA's shared memory until then.
#pragma once

#include "device/ptx/dependent_launch.cuh"
#include "device/ptx/named_barrier.cuh"
#include "device/sm90/epilogue_ring.cuh"
#include "device/sm90/mainloop.cuh"
#include "device/sm90/operand_scales.cuh"
#include "device/sm90/ptx/cluster.cuh"
#include "device/sm90/ptx/registers.cuh"
#include "device/sm90/tile_scheduler.cuh"

namespace coda::device {

enum class ProducerWarp : u32 { operands = 0, epilogue_loads = 1, epilogue_stores = 2 };

template <GemmConfig kConfig, class... Spaces>
constexpr RingShape ring_of() {
  RingShape shape;
  ((shape = merged(shape, ring_shape(kConfig, Spaces::kTraits))), ...);
  return shape;
}

// The number of loads during a tile's mainloop: row values, then one step per fragment of tables.
template <class Space>
constexpr u32 steps_under_mainloop() {
  return 1 + (Space::kTraits.keeps_tables ? kFragments : 0);
}
template <class Space, u32 kStep, class Arguments>
__device__ __forceinline__ void step_under_mainloop(const Arguments& arguments,
                                                    typename Space::Rows& rows,
                                                    const FragmentPosition& position) {
  if constexpr (kStep == 0) {
    Space::begin_tile(arguments, rows, position);
  } else {
    Space::template load_tables<kStep - 1>(arguments, rows, position);
  }
}

// tile_counter: the address of the scheduler's u32 counter, which is 0.
template <GemmConfig kConfig, class... Spaces, class Arguments>
__device__ __forceinline__ void program_kernel(const Arguments& arguments, u64 tile_counter) {
  static_assert((is_valid(kConfig, Spaces::kTraits) && ...));
  constexpr bool kAnyLoads = ((Spaces::kTraits.loads != 0) || ...);
  constexpr RingShape kRing = ring_of<kConfig, Spaces...>();
  using Main = Mainloop<kConfig>;
  using Ring = EpilogueRing<kConfig, kRing, kAnyLoads>;
  constexpr SharedLayout kShared = Ring::kShared;
  constexpr bool kPingPong = kConfig.schedule == Schedule::ping_pong;
  using MainloopTurn = Turn<NamedBarrier::mainloop_order>;
  using EpilogueTurn = Turn<NamedBarrier::epilogue_order>;
  // The readers of a tile number: the consumers' warps, the load warp and the store warp.
  constexpr u32 kReaders = kConsumerWarpgroups * kWarpgroupSize / kWarpSize + (kAnyLoads ? 1 : 0) +
                           (kRing.planes != 0 ? 1 : 0);

  extern __shared__ __align__(kSharedAlignment) u8 shared_memory[];
  const SharedAddress shared = shared_address(shared_memory);
  const SharedAddress barriers = shared + kShared.barriers;
  const SharedAddress ring_barriers = barriers + 2 * kConfig.stages * kBarrierBytes;
  const Main mainloop{.stages_a = shared + kShared.a,
                      .stages_b = shared + kShared.b,
                      .full = barriers,
                      .empty = barriers + kConfig.stages * kBarrierBytes};
  const Ring ring{.groups = shared + kShared.ring,
                  .slots = shared + kShared.slots,
                  .barriers = ring_barriers,
                  .scratch = shared + kShared.scratch};

  const u32 warp = __shfl_sync(~0u, threadIdx.x / kWarpSize, 0);
  const u32 warpgroup = warp / (kWarpgroupSize / kWarpSize);
  const u32 rank = kConfig.cluster_size() == 1 ? 0 : cluster_cta_rank();
  const TileScheduler<kConfig, kReaders, Spaces...> tiles{
      .counter = tile_counter, .rank = rank, .slots = shared + kShared.tile_slots};

  if (threadIdx.x == 0) {
    (tma_prefetch_descriptor(Spaces::a(arguments, 0)), ...);
    (tma_prefetch_descriptor(Spaces::b(arguments, 0, 0)), ...);
    mainloop.init_barriers();
    ring.init_barriers();
    tiles.init_barriers();
    fence_barrier_init();
  }
  if constexpr (kConfig.cluster_size() == 1) {
    __syncthreads();
  } else {
    cluster_sync();
  }
  // The first number is taken while the previous kernel ends.
  u32 first = 0;
  if (threadIdx.x == 0 && tiles.deals()) first = tiles.deal(arguments, 0);
  wait_for_predecessor();

  if (warpgroup == 0) {
    release_registers<kConfig.producer_registers>();
    const bool leader = threadIdx.x % kWarpSize == 0;
    if (leader && warp == static_cast<u32>(ProducerWarp::operands)) {
      typename Main::State state;
      u32 turn = 1;
      const auto next = [&] {
        return tiles.deals() ? tiles.deal(arguments, turn++) : tiles.receive(turn++);
      };
      if (!tiles.deals()) first = tiles.receive(0);
      tiles.walk(arguments, first, next, [&](auto tag, TileCoord tile) {
        mainloop.template load<typename decltype(tag)::Type>(arguments, tile, rank, state);
      });
      launch_dependents();
    } else if (leader && warp == static_cast<u32>(ProducerWarp::epilogue_loads)) {
      if constexpr (kAnyLoads) {
        typename Ring::State state;
        u32 turn = 0;
        const auto next = [&] { return tiles.receive(turn++); };
        tiles.walk(arguments, next(), next, [&](auto tag, TileCoord tile) {
          using Space = typename decltype(tag)::Type;
          if constexpr (Space::kTraits.staged()) {
            ring.template load<Space>(arguments, tile, state);
          }
        });
      }
    } else if (leader && warp == static_cast<u32>(ProducerWarp::epilogue_stores)) {
      if constexpr (kRing.planes != 0) {
        typename Ring::State state;
        typename Ring::Unreleased unreleased;
        u32 turn = 0;
        const auto next = [&] { return tiles.receive(turn++); };
        tiles.walk(arguments, next(), next, [&](auto tag, TileCoord tile) {
          using Space = typename decltype(tag)::Type;
          if constexpr (Space::kTraits.staged()) {
            ring.template store<Space>(arguments, tile, state, unreleased);
          }
        });
        ring.drain(unreleased);
      }
    }
    __syncwarp();
  } else {
    claim_registers<kConfig.consumer_registers>();
    const u32 consumer = warpgroup - 1;
    const u32 thread = threadIdx.x % kWarpgroupSize;
    typename Main::State state;
    typename Ring::Consumer ring_consumer;
    if constexpr (kRing.column_partials != 0) ring_consumer.scratch = ring.scratch_of(consumer);
    bool own = !kPingPong || consumer == 0;
    if constexpr (kPingPong) {
      MainloopTurn::open(consumer);
      EpilogueTurn::open(consumer);
    } else {
      ring_consumer.state.advance_by(consumer);
    }
    const u32 own_row = kPingPong ? 0 : consumer * kConfig.warpgroup_m();
    u32 turn = 0;  // a constant in all threads, so it takes none of their registers
    const auto next = [&] { return tiles.receive_by_warp(turn++); };
    tiles.walk(arguments, next(), next, [&](auto tag, TileCoord tile) {
      using Space = typename decltype(tag)::Type;
      constexpr bool kStaged = Space::kTraits.staged();
      const u32 k_blocks = Main::template k_blocks<Space>(arguments);
      if (!own) {  // a tile of the other ping-pong warpgroup
        state.advance_by(k_blocks);
        if constexpr (kStaged) {
          ring_consumer.state.advance_by(sub_tiles(kConfig, Space::kTraits));
        }
        own = true;
        return;
      }
      typename Main::Accumulators accumulators;
      typename Space::Rows rows;
      const FragmentPosition position{.row = tile.m + own_row + fragment_row(thread, 0),
                                      .column = tile.n + fragment_column(thread, 0),
                                      .thread = thread,
                                      .rows = Space::rows(arguments),
                                      .columns = Space::columns(arguments)};
      if constexpr (kPingPong) MainloopTurn::enter(consumer);
      // Row data of the epilogue are loaded during the mainloop. Rows of tables are scattered in
      // memory, so their loads take longer than one block and are spread over several. A ping-pong
      // warpgroup has the tensor cores for itself and would leave them idle while it waits for an
      // index, so it loads during the other warpgroup's turn.
      constexpr u32 kSteps = steps_under_mainloop<Space>();
      const auto begin = [&](auto step) {
        step_under_mainloop<Space, decltype(step)::value>(arguments, rows, position);
      };
      const auto issued = [&] {
        if constexpr (kPingPong) {
          MainloopTurn::leave(consumer);
          unrolled<kSteps>(begin);
        }
      };
      const auto scales = [&](u32 k) {
        if constexpr (kConfig.has_scales) {
          return OperandScales<kConfig, Space>(arguments, position.row, tile.n, k);
        } else {
          return NoScales{};
        }
      };
      mainloop.template multiply<kPingPong ? 0 : kSteps>(k_blocks, own_row, rank, state,
                                                         accumulators, begin, issued, scales);
      if constexpr (kPingPong) EpilogueTurn::enter(consumer);
      ring.template transform<Space>(arguments, rows, position, ring_consumer, accumulators, [&] {
        if constexpr (kPingPong) EpilogueTurn::leave(consumer);
      });
      own = !kPingPong;
    });
  }
  if constexpr (kConfig.cluster_size() != 1) cluster_sync();
}

}  // namespace coda::device
