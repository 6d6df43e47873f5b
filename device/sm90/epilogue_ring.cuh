// SPDX-License-Identifier: Apache-2.0
// The ring of staging buffers between an epilogue and memory. A group of planes serves one
// sub-tile: a load warp fills it during the mainloop, consumer warps transform it in place, and a
// store warp writes it out and returns it. So a consumer waits for a store only if the ring is
// full, and loads run ahead by as many sub-tiles as the ring holds. Planes that are only stored may
// have slots of their own (device/layout/shared_layout.cuh), which consumers get from the store
// warp.
// Protocol of a group: free (load warp) -> full (consumers) -> staged (store warp) -> free. Without
// loads, consumers take a free group themselves.
// Invariant: all roles visit the groups in the same order. A consumer finishes with a group before
// its next turn at it (by an order barrier between ping-pong warpgroups, by an even ring length
// between cooperative ones), so the parity of a phase is never ambiguous.
#pragma once

#include "device/epilogue/fragment_bytes.cuh"
#include "device/epilogue/group_values.cuh"
#include "device/layout/shared_layout.cuh"
#include "device/ptx/barrier.cuh"
#include "device/ptx/matrix_move.cuh"
#include "device/sm90/pipeline.cuh"
#include "device/sm90/ptx/tma.cuh"
#include "device/values/unrolled.cuh"

namespace coda::device {

// A kernel may have several tile spaces (device/layout/space.cuh), whose sub-tiles use one ring one
// after another; its groups have the size of the largest. If any space loads, the load warp hands
// over every group, so that all barriers of a group have the same phase. A space without planes
// does not use the ring.
template <GemmConfig kConfig, RingShape kRing, bool kAnyLoads>
struct EpilogueRing {
  static constexpr SharedLayout kShared = shared_layout(kConfig, kRing);
  static constexpr RingGroups kRings = kShared.rings;
  static constexpr u32 kGroups = larger(1, kRings.groups);
  static constexpr u32 kGroupBytes = larger(1, kRings.planes) * kRing.plane_bytes;
  static constexpr bool kHasSlots = kRings.slot_planes != 0;
  static constexpr u32 kSlotBytes = kRings.slot_planes * kRing.plane_bytes;
  static constexpr u32 kSharers =
      kConfig.schedule == Schedule::cooperative ? kConsumerWarpgroups : 1;
  static_assert(kShared.fits(), "the epilogue's staging does not fit beside the mainloop's stages");
  // Each cooperative warpgroup has its own groups and slots, used in order.
  static_assert(kRings.groups % kSharers == 0 && kRings.slots % kSharers == 0);
  static_assert(kSharers != 1 || !kHasSlots);

  // A role's positions in the rings of groups and slots.
  struct State {
    PipelineState<kGroups> group;
    PipelineState<larger(1, kRings.slots)> slot;

    __device__ __forceinline__ void advance() {
      group.advance();
      if constexpr (kHasSlots) slot.advance();
    }
    __device__ __forceinline__ void advance_by(u32 sub_tiles) {
      group.advance_by(sub_tiles);
      if constexpr (kHasSlots) slot.advance_by(sub_tiles);
    }
  };
  using Accumulators = float[kConfig.blocks_m()][kConfig.tile_n / 2];

  SharedAddress groups;
  SharedAddress slots;
  SharedAddress barriers;
  SharedAddress scratch;

  static constexpr u32 kBarriers = 3 * kRings.groups + kRings.slots;

  __device__ __forceinline__ void init_barriers() const {
    for (u32 group = 0; group < kRings.groups; ++group) {
      barrier_init(full(group), 1);
      barrier_init(staged(group), kWarpgroupSize / kWarpSize);
      barrier_init(free(group), 1);
    }
    for (u32 slot = 0; slot < kRings.slots; ++slot) barrier_init(free_slot(slot), 1);
  }

  // Run by one thread of the load warp, for all sub-tiles of a tile.
  template <class Space, class Arguments>
  __device__ __forceinline__ void load(const Arguments& arguments, TileCoord tile,
                                       State& state) const {
    constexpr EpilogueTraits kTraits = Space::kTraits;
    for (u32 index = 0; index < sub_tiles(kConfig, kTraits); ++index) {
      const SharedAddress barrier = full(state.group.stage);
      barrier_wait(free(state.group.stage), state.group.phase ^ 1);
      if constexpr (kTraits.loads == 0) {
        barrier_arrive(barrier);
      } else {
        const TileCoord origin = sub_tile_origin(kConfig, kTraits, tile, index);
        barrier_arrive_expect(barrier, kTraits.word_loads() * plane_bytes(kConfig, kTraits) +
                                           kTraits.byte_loads * kBytePlaneHalf);
#pragma unroll
        for (u32 plane = 0; plane < kTraits.loads; ++plane) {
          Space::load(arguments, plane,
                      group_address(state) + kTraits.load_offset(plane, kRing.plane_bytes),
                      origin.m, origin.n, barrier);
        }
      }
      state.advance();
    }
  }

  // Groups whose stores may still be reading shared memory.
  struct Unreleased {
    State oldest;
    u32 count = 0;
  };
  // The number of groups that may still be read while more are staged: enough to keep several
  // stores in flight, few enough that loads find free groups.
  static constexpr u32 kInFlight =
      larger(1, (kHasSlots ? smaller(kGroups, kRings.slots) : kGroups) / 2);

  // Run by one thread of the store warp, for all sub-tiles of a tile. Groups are returned when
  // their stores have read them, or when there is nothing else to do; `drain` returns the last
  // ones.
  template <class Space, class Arguments>
  __device__ __forceinline__ void store(const Arguments& arguments, TileCoord tile, State& state,
                                        Unreleased& unreleased) const {
    constexpr EpilogueTraits kTraits = Space::kTraits;
    for (u32 index = 0; index < sub_tiles(kConfig, kTraits); ++index) {
      const SharedAddress barrier = staged(state.group.stage);
      if (!barrier_test(barrier, state.group.phase)) drain(unreleased);
      barrier_wait(barrier, state.group.phase);
      const TileCoord origin = sub_tile_origin(kConfig, kTraits, tile, index);
      if constexpr (kTraits.stores != 0) {
#pragma unroll
        for (u32 plane = 0; plane < kTraits.stores; ++plane) {
          Space::store(arguments, plane, origin.m, origin.n,
                       plane_address(state, kTraits.store_plane(plane)));
        }
      }
      if constexpr (kTraits.bytes != 0) {
#pragma unroll
        for (u32 half = 0; half < kTraits.byte_halves(); ++half) {
          Space::store_bytes(arguments, half, origin.m, origin.n,
                             byte_half_address<Space>(state, half));
        }
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

  // The state of a consumer warpgroup between tiles.
  struct Consumer {
    State state;            // the tile's first sub-tile of this warpgroup
    SharedAddress scratch;  // the warpgroup's buffer for its next sub-tile
  };

  __device__ __forceinline__ SharedAddress scratch_of(u32 consumer) const {
    return scratch + consumer * kScratchBuffers * kScratchBytes;
  }

  // Run by one consumer warpgroup, for its sub-tiles of one tile at the given first row and base
  // column of this thread. Advances `consumer` to the next tile. Calls `waited` when the last group
  // has been received.
  template <class Space, class Arguments, class Waited>
  __device__ __forceinline__ void transform(const Arguments& arguments,
                                            const typename Space::Rows& rows,
                                            const FragmentPosition& position, Consumer& consumer,
                                            const Accumulators& accumulators, Waited waited) const {
    // The number of sub-tiles that are written before one common fence, because a fence waits for
    // writes: the whole tile if the ring holds it and there are no loads; otherwise each sub-tile
    // is passed on at once to make room for the next.
    constexpr u32 kOwn = sub_tiles_per_warpgroup(kConfig, Space::kTraits);
    constexpr bool kWhole = !kAnyLoads && kRings.groups >= sub_tiles(kConfig, Space::kTraits);
    constexpr u32 kBatch = kWhole || !Space::kTraits.staged() ? kOwn : 1;
    auto groups = groups_of<Space>();
    unrolled<kOwn / kBatch>([&](auto batch) {
      State arriving = consumer.state;
      unrolled<kBatch>([&](auto inside) {
        constexpr u32 kIndex = decltype(batch)::value * kBatch + decltype(inside)::value;
        sub_tile<Space, kIndex>(arguments, rows, position, consumer, accumulators, groups, [&] {
          // Without planes there is nothing to wait for.
          if constexpr (kIndex == (Space::kTraits.staged() ? kOwn - 1 : 0)) waited();
        });
      });
      if constexpr (Space::kTraits.staged()) {
        fence_async_proxy();
        __syncwarp();
#pragma unroll
        for (u32 own = 0; own < kBatch; ++own) {
          if (threadIdx.x % kWarpSize == 0) {
            barrier_arrive(staged(arriving.group.stage));
          }
          arriving.advance_by(kSharers);
        }
      }
    });
  }

 private:
  static constexpr u32 kScratchBytes = scratch_bytes(kRing);

  template <class Space, u32 kIndex, class Arguments, class Groups, class Waited>
  __device__ __forceinline__ void sub_tile(const Arguments& arguments,
                                           const typename Space::Rows& rows,
                                           const FragmentPosition& tile, Consumer& consumer,
                                           const Accumulators& accumulators, Groups& groups,
                                           Waited waited) const {
    constexpr u32 kColumns = sub_tile_columns(kConfig, Space::kTraits);
    constexpr u32 kBlock = kIndex / kColumns;
    constexpr u32 kWidth = sub_tile_width(kConfig, Space::kTraits);
    constexpr u32 kFirst = kIndex % kColumns * kWidth;
    typename Space::SubTile values;
    FragmentPosition position = tile;
    position.row += kBlock * kWgmmaM;
    position.column += kFirst;
    // The shuffle hides common subexpressions of sub-tiles: the assembler would keep masks and
    // addresses of all sub-tiles in registers and spill them.
    position.column = __shfl_sync(~0u, position.column, tile.thread % kWarpSize);
    FragmentPosition first = position;
    constexpr u32 kSpan = Space::kTraits.group_span;
    if constexpr (kSpan == 0) {
      Space::template begin_sub_tile<kBlock>(arguments, rows, values, first);
    } else if constexpr (kFirst % larger(1, kSpan) == 0) {
      groups = groups_of<Space>();  // sums start at 0
      Space::template begin_groups<kBlock>(arguments, rows, groups, first);
    }
    if constexpr (Space::kTraits.staged()) receive(consumer.state);
    waited();
    const u32 own_fragment = fragment_offset(tile.thread, 0, kWidth);
    const SharedAddress first_fragment = group_address(consumer.state) + own_fragment;
    // The address at which plane kRings.planes is the slot's first plane.
    const SharedAddress first_of_slot = slot_address(consumer.state) + own_fragment;
    // A warp reads and writes only its own 16 rows, so a plane is transformed in place.
    const auto address = [&](u32 wide, u32 plane, u32 fragment, bool is_store) {
      const PlanePlace place = plane_place(Space::kTraits.natural_half, wide, plane, fragment);
      const u32 own = is_store ? Space::kTraits.store_plane(place.plane) : place.plane;
      const SharedAddress first = is_in_slot(own) ? first_of_slot : first_fragment;
      return (first ^ fragment_step(place.fragment)) + own * kRing.plane_bytes;
    };
    const auto load = [&](u32(&words)[4], u32 plane, u32 fragment) {
      if (plane < Space::kTraits.word_loads()) {
        load_matrices(words, address(Space::kTraits.wide_loads, plane, fragment, false));
      } else {
        load_byte_rows(
            words,
            group_address(consumer.state) + Space::kTraits.load_offset(plane, kRing.plane_bytes),
            tile.thread, fragment);
      }
    };
    if constexpr (kSpan != 0) {
      if constexpr (kFirst % kSpan == 0) {
        walk_groups<Space, kBlock, kFirst>(arguments, rows, first, accumulators, groups, load);
      } else {
        Space::next_sub_tile(groups);
      }
      values.groups = groups;
      // After the walk, the position is hidden by a shuffle; otherwise the fragments' loads would
      // be moved ahead of the walk, into registers that it needs.
      position.column = __shfl_sync(~0u, position.column, tile.thread % kWarpSize);
      first = position;
      Space::template begin_sub_tile<kBlock>(arguments, rows, values, first);
    }
    unrolled<kWidth / kFragmentColumns>([&](auto fragment) {
      constexpr u32 kFragment = decltype(fragment)::value;
      u32 loaded[larger(1, Space::kTraits.loads)][4];
      u32 stored[larger(1, Space::kTraits.stores + Space::kTraits.bytes)][4];
      if constexpr (Space::kTraits.loads != 0) {
#pragma unroll
        for (u32 plane = 0; plane < Space::kTraits.loads; ++plane)
          load(loaded[plane], plane, kFragment);
      }
      float acc[Space::kTraits.parts][kFragmentElements];
      take_fragment<Space, kBlock, kFirst + kFragment * kFragmentColumns>(acc, accumulators);
      Space::template fragment<kBlock, kFragment>(arguments, rows, values, acc, loaded, stored,
                                                  position);
      position.column += kFragmentColumns;
      if constexpr (Space::kTraits.stores != 0) {
#pragma unroll
        for (u32 plane = 0; plane < Space::kTraits.stores; ++plane) {
          store_matrices(address(Space::kTraits.wide_stores, plane, kFragment, true),
                         stored[plane]);
        }
      }
#pragma unroll
      for (u32 byte = 0; byte < Space::kTraits.bytes; ++byte) {
        const u32(&bytes)[4] = stored[Space::kTraits.stores + byte];
        const auto half = [&](bool along_columns) {
          return byte_half_address<Space>(consumer.state,
                                          Space::kTraits.byte_half(byte, along_columns));
        };
        if ((Space::kTraits.byte_rows >> byte & 1) != 0)
          stage_byte_rows(half(false), bytes, tile.thread, kFragment);
        if ((Space::kTraits.byte_columns >> byte & 1) != 0)
          stage_byte_columns(half(true), bytes, tile.thread, kFragment);
      }
    });
    Space::template end_sub_tile<kBlock>(arguments, rows, values, first, consumer.scratch);
    if constexpr (Space::kTraits.column_partials != 0) next_scratch(consumer);
    if constexpr (Space::kTraits.staged()) consumer.state.advance_by(kSharers);
  }

  // The accumulators of the 16 base columns from kColumn of the tile on.
  template <class Space, u32 kBlock, u32 kColumn>
  __device__ __forceinline__ static void take_fragment(
      float (&fragment)[Space::kTraits.parts][kFragmentElements],
      const Accumulators& accumulators) {
#pragma unroll
    for (u32 part = 0; part < Space::kTraits.parts; ++part) {
      const u32 column = accumulator_column(kConfig, Space::kTraits, part, kColumn);
#pragma unroll
      for (u32 i = 0; i < kFragmentElements; ++i) {
        fragment[part][i] = accumulators[kBlock][column / 2 + i];
      }
    }
  }

  // Sums over the groups of the span that starts at column kFirst of the tile. `first` is the
  // position of its first fragment; `load` loads a fragment of a sub-tile's plane.
  template <class Space, u32 kBlock, u32 kFirst, class Arguments, class Groups, class Load>
  __device__ __forceinline__ void walk_groups(const Arguments& arguments,
                                              const typename Space::Rows& rows,
                                              const FragmentPosition& first,
                                              const Accumulators& accumulators, Groups& groups,
                                              Load load) const {
    unrolled<Space::kTraits.group_walks>([&](auto walk) {
      constexpr u32 kWalk = decltype(walk)::value;
      FragmentPosition position = first;
      unrolled<Space::kTraits.group_span / kFragmentColumns>([&](auto fragment) {
        constexpr u32 kFragment = decltype(fragment)::value;
        u32 loaded[larger(1, Space::kTraits.loads)][4];
#pragma unroll
        for (u32 plane = 0; plane < Space::kTraits.loads; ++plane) {
          if ((Space::kTraits.group_loads >> plane & 1) == 0) continue;
          load(loaded[plane], plane, kFragment);
        }
        float acc[Space::kTraits.parts][kFragmentElements];
        take_fragment<Space, kBlock, kFirst + kFragment * kFragmentColumns>(acc, accumulators);
        Space::template walk_groups<kWalk, kBlock, kFragment>(arguments, rows, groups, acc, loaded,
                                                              position);
        position.column += kFragmentColumns;
      });
      Space::template end_walk<kWalk, kBlock>(arguments, rows, groups, first);
    });
  }

  // Sub-tiles alternate between two buffers.
  __device__ __forceinline__ void next_scratch(Consumer& consumer) const {
    const SharedAddress first = scratch_of(threadIdx.x / kWarpgroupSize - 1);
    consumer.scratch = consumer.scratch == first ? first + kScratchBytes : first;
  }

  __device__ __forceinline__ void release(Unreleased& unreleased) const {
    barrier_arrive(free(unreleased.oldest.group.stage));
    if constexpr (kHasSlots) barrier_arrive(free_slot(unreleased.oldest.slot.stage));
    unreleased.oldest.advance();
    --unreleased.count;
  }

  // Without loads, the group comes directly from the store warp.
  __device__ __forceinline__ void receive(const State& state) const {
    if constexpr (kAnyLoads) {
      barrier_wait(full(state.group.stage), state.group.phase);
    } else {
      barrier_wait(free(state.group.stage), state.group.phase ^ 1);
    }
    if constexpr (kHasSlots) barrier_wait(free_slot(state.slot.stage), state.slot.phase ^ 1);
  }

  __device__ __forceinline__ SharedAddress full(u32 group) const {
    return barriers + group * kBarrierBytes;
  }
  __device__ __forceinline__ SharedAddress staged(u32 group) const {
    return full(kRings.groups + group);
  }
  __device__ __forceinline__ SharedAddress free(u32 group) const {
    return full(2 * kRings.groups + group);
  }
  __device__ __forceinline__ SharedAddress free_slot(u32 slot) const {
    return full(3 * kRings.groups + slot);
  }

  static constexpr bool is_in_slot(u32 plane) { return kHasSlots && plane >= kRings.planes; }
  __device__ __forceinline__ SharedAddress group_address(const State& state) const {
    return groups + state.group.stage * kGroupBytes;
  }
  // Subtracts the planes of a group, because their numbers come first.
  __device__ __forceinline__ SharedAddress slot_address(const State& state) const {
    return slots + state.slot.stage * kSlotBytes - kGroupBytes;
  }
  __device__ __forceinline__ SharedAddress plane_address(const State& state, u32 plane) const {
    return (is_in_slot(plane) ? slot_address(state) : group_address(state)) +
           plane * kRing.plane_bytes;
  }
  template <class Space>
  __device__ __forceinline__ SharedAddress byte_half_address(const State& state, u32 half) const {
    return plane_address(state, Space::kTraits.first_byte_plane() + half / 2) +
           half % 2 * kBytePlaneHalf;
  }
};

}  // namespace coda::device
