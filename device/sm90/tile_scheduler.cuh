// SPDX-License-Identifier: Apache-2.0
// Distributes tiles to persistent CTAs through a counter in memory. A cluster takes the next number
// when it is about to load that tile, so CTAs that start late leave tiles to the others. CTAs start
// late if another kernel occupies their multiprocessors, for example NCCL's during a GEMM. With a
// fixed distribution the launch would take as long as the latest CTA. In the first CTA of a
// cluster, the thread that loads operands takes the numbers and sends each to all roles of all
// CTAs, through a ring of slots in shared memory.
// Protocol of a slot: empty (all have read it) -> full (the number has arrived). A number after the
// last tile ends the loop.
// Invariants: every role visits the same tiles in the same order. The counter is 0 before and after
// a launch: each cluster takes one number too many, and the last of these resets it. Consecutive
// launches in a stream may share a counter even if they overlap, because a CTA lets the next launch
// start only after its own last number.
#pragma once

#include "device/layout/shared_layout.cuh"
#include "device/layout/tile_order.cuh"
#include "device/ptx/barrier.cuh"
#include "device/sm90/ptx/cluster.cuh"

namespace coda::device {

// Passes a space type as a value.
template <class Space>
struct SpaceTag {
  using Type = Space;
};

// kReaders: warps and threads of a CTA that read numbers, without the thread that loads operands.
// The tiles of all spaces form one list, so that the last wave of a space is filled with tiles of
// the next.
template <GemmConfig kConfig, u32 kReaders, class... Spaces>
struct TileScheduler {
  static constexpr u32 kCtas = kConfig.cluster_size();

  u64 counter;  // address of a u32
  u32 rank;     // of this CTA in its cluster
  SharedAddress slots;

  __device__ __forceinline__ void init_barriers() const {
    for (u32 slot = 0; slot < kTileSlots; ++slot) {
      barrier_init(full(slot), 1);
      barrier_init(empty(slot), kReaders * kCtas + (kCtas - 1));
    }
  }

  __device__ __forceinline__ bool deals() const { return kCtas == 1 || rank == 0; }

  // The cluster's next tile, its `turn`-th. Called by the thread that loads operands, in the CTA
  // that deals.
  template <class Arguments>
  __device__ __forceinline__ u32 deal(const Arguments& arguments, u32 turn) const {
    const u32 slot = turn % kTileSlots;
    barrier_wait(empty(slot), turn / kTileSlots % 2 ^ 1);
    const u32 tiles = (Spaces::order(arguments).count() + ...);
    const u32 tile = take_number(counter, tiles + gridDim.x / kCtas - 1);
#pragma unroll
    for (u32 cta = 0; cta < kCtas; ++cta) {
      const ClusterAddress arrived = cluster_address(full(slot), cta);
      barrier_arrive_expect(arrived, sizeof(u32));
      send_word(cluster_address(number(slot), cta), tile, arrived);
    }
    return tile;
  }

  // Receives a number in a single thread.
  __device__ __forceinline__ u32 receive(u32 turn) const {
    const u32 tile = wait_for_number(turn);
    barrier_arrive(cluster_address(empty(turn % kTileSlots), 0));
    return tile;
  }
  // Receives a number in all threads of a warp.
  __device__ __forceinline__ u32 receive_by_warp(u32 turn) const {
    // The shuffle tells the assembler that the number is equal in all lanes, and waits until all
    // have read it.
    const u32 tile = __shfl_sync(~0u, wait_for_number(turn), 0);
    barrier_arrive_by_warp(empty(turn % kTileSlots), 0);
    return tile;
  }

  // Calls visit(SpaceTag<Space>, tile) for each tile from `first` on; next() returns the following
  // number.
  template <class Arguments, class Next, class Visit>
  __device__ __forceinline__ void walk(const Arguments& arguments, u32 first, Next next,
                                       Visit visit) const {
    u32 begin = 0;
    u32 index = first;
    (walk_space<Spaces>(arguments, begin, index, next, visit), ...);
  }

 private:
  template <class Space, class Arguments, class Next, class Visit>
  __device__ __forceinline__ void walk_space(const Arguments& arguments, u32& begin, u32& index,
                                             Next& next, Visit& visit) const {
    const TileOrder order = Space::order(arguments);
    const u32 end = begin + order.count();
    for (; index < end; index = next()) {
      const TileCoord cluster_tile = order.cluster_tile(index - begin);
      visit(SpaceTag<Space>{}, cta_tile(kConfig, Space::kTraits, cluster_tile, rank));
    }
    begin = end;
  }

  __device__ __forceinline__ u32 wait_for_number(u32 turn) const {
    const u32 slot = turn % kTileSlots;
    barrier_wait(full(slot), turn / kTileSlots % 2);
    return load_word(number(slot));
  }

  __device__ __forceinline__ SharedAddress full(u32 slot) const {
    return slots + slot * kBarrierBytes;
  }
  __device__ __forceinline__ SharedAddress empty(u32 slot) const { return full(kTileSlots + slot); }
  __device__ __forceinline__ SharedAddress number(u32 slot) const {
    return full(2 * kTileSlots) + slot * static_cast<u32>(sizeof(u32));
  }
};

}  // namespace coda::device
