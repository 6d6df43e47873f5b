// SPDX-License-Identifier: Apache-2.0
// A kernel for the tile spaces of a program, on GPUs without wgmma. Each CTA computes one tile; the
// CTAs of a space follow those of the previous space. The two groups of four warps run the mainloop
// together (mainloop.cuh). Then each group runs the epilogue on its own sub-tiles of 64 rows by 64
// base columns. Planes pass through shared memory, where the mainloop's stages were
// (plane_copy.cuh). A space is the struct that device/layout/space.cuh describes, except that its
// operands are StoredOperands and its load() ignores the barrier.
#pragma once

#include "device/epilogue/column_partial.cuh"
#include "device/epilogue/fragment_bytes.cuh"
#include "device/epilogue/fragment_values.cuh"
#include "device/epilogue/group_values.cuh"
#include "device/ptx/dependent_launch.cuh"
#include "device/ptx/launch_memory.cuh"
#include "device/ptx/matrix_move.cuh"
#include "device/sm80/mainloop.cuh"
#include "device/sm80/plane_copy.cuh"
#include "device/values/unrolled.cuh"

namespace coda::device::sm80 {

template <Config kConfig, RingShape kRing, class Space>
struct TileEpilogue {
  static constexpr EpilogueTraits kTraits = Space::kTraits;
  using Main = Mainloop<kConfig, Space>;
  using Accumulators = typename Main::Accumulators;
  static constexpr u32 kFragmentsOfTile = Main::kFragmentsN;
  static constexpr u32 kSubTiles = kFragmentsOfTile / kFragments;  // of one block of rows
  static constexpr u32 kOwn = Main::kBlocks * kSubTiles;
  static constexpr u32 kSlots = slots(kConfig, kTraits);

  SharedAddress planes;   // the group's first slot
  SharedAddress scratch;  // the group's first scratch buffer

  // Begins to load planes. `position`: of the thread's first fragment.
  template <class Arguments>
  __device__ __forceinline__ void begin(const Arguments& arguments,
                                        const FragmentPosition& position) const {
    if constexpr (kTraits.staged()) {
      __syncthreads();  // other warps have read the stages
#pragma unroll 1        // unrolled, its addresses take registers beside the accumulators
      for (u32 index = 0; index < kSlots; ++index) load(arguments, position, index);
    }
  }

  template <class Arguments>
  __device__ __forceinline__ void run(const Arguments& arguments, const typename Space::Rows& rows,
                                      const FragmentPosition& position,
                                      const Accumulators& accumulators) const {
    auto groups = groups_of<Space>();
    unrolled<Main::kBlocks>([&](auto block) {
      unrolled<kSubTiles>([&](auto column) {
        sub_tile<decltype(block)::value, decltype(column)::value>(arguments, rows, position,
                                                                  accumulators, groups);
      });
    });
  }

 private:
  static constexpr u32 kSpan = kTraits.group_span;

  template <u32 kBlock, u32 kIndex, class Arguments, class Groups>
  __device__ __forceinline__ void sub_tile(const Arguments& arguments,
                                           const typename Space::Rows& rows,
                                           const FragmentPosition& tile,
                                           const Accumulators& accumulators, Groups& groups) const {
    // Sub-tiles alternate between two scratch buffers.
    const SharedAddress own =
        scratch + (kBlock * kSubTiles + kIndex) % kScratchBuffers * scratch_bytes(kRing);
    typename Space::SubTile values;
    FragmentPosition position = tile;
    position.row += kBlock * kBlockRows;
    position.column += kIndex * kSubTileColumns;
    // The shuffle hides common subexpressions of sub-tiles. In a walk over groups, the assembler
    // would keep masks and addresses of all sub-tiles in registers and spill them.
    if constexpr (kSpan != 0)
      position.column = __shfl_sync(~0u, position.column, tile.thread % kWarpSize);
    const FragmentPosition first = position;
    if constexpr (kTraits.loads != 0) {
      wait_for_copies<kSlots - 1>();
      __syncwarp();
    }
    if constexpr (kSpan != 0) {
      if constexpr (kIndex * kSubTileColumns % kSpan == 0) {
        groups = groups_of<Space>();  // the sums start at 0
        Space::template begin_groups<kBlock>(arguments, rows, groups, first);
        walk_groups<kBlock, kIndex>(arguments, rows, first, accumulators, groups);
      } else {
        Space::next_sub_tile(groups);
      }
      values.groups = groups;
    }
    Space::template begin_sub_tile<kBlock>(arguments, rows, values, first);
    unrolled<kFragments>([&](auto fragment) {
      constexpr u32 kFragment = decltype(fragment)::value;
      u32 loaded[larger(1, kTraits.loads)][4];
      u32 stored[larger(1, kTraits.stores)][4];
      if constexpr (kTraits.loads != 0) {
#pragma unroll
        for (u32 plane = 0; plane < kTraits.loads; ++plane)
          take_plane<kBlock * kSubTiles + kIndex, kFragment>(loaded[plane], plane, tile.thread);
        __syncwarp();  // all lanes have loaded what the fragment's stores overwrite
      }
      float acc[kTraits.parts][kFragmentElements];
      take_fragment<kBlock, kIndex * kFragments + kFragment>(acc, accumulators);
      Space::template fragment<kBlock, kFragment>(arguments, rows, values, acc, loaded, stored,
                                                  position);
      position.column += kFragmentColumns;
      if constexpr (kTraits.stores != 0) {
#pragma unroll
        for (u32 plane = 0; plane < kTraits.stores; ++plane)
          leave_plane<kBlock * kSubTiles + kIndex, kFragment>(stored[plane], plane, tile.thread);
      }
    });
    Space::template end_sub_tile<kBlock>(arguments, rows, values, first, own);
    if constexpr (kTraits.staged()) pass_on<kBlock * kSubTiles + kIndex>(arguments, tile);
  }

  // Sub-tile kIndex of the group, from the group's first row and base column.
  static constexpr u32 row_of(u32 index) { return index / kSubTiles * kBlockRows; }
  static constexpr u32 column_of(u32 index) { return index % kSubTiles * kSubTileColumns; }
  __device__ __forceinline__ SharedAddress slot(u32 index) const {
    return planes + index % kSlots * slot_bytes(kTraits);
  }

  // Begins to load the planes of a sub-tile, if there is such a sub-tile. There is a group of
  // copies for each sub-tile, even an empty one, so that a warp can wait for those of the oldest.
  template <class Arguments>
  __device__ __forceinline__ void load(const Arguments& arguments, const FragmentPosition& tile,
                                       u32 index) const {
    if constexpr (kTraits.loads != 0) {
      if (index < kOwn) {
#pragma unroll
        for (u32 plane = 0; plane < kTraits.loads; ++plane) {
          Space::load(arguments, plane, slot(index) + kTraits.load_offset(plane, kSubTileBytes),
                      tile.partial_row() * kWgmmaM + row_of(index),
                      tile.partial_column() * kSubTileColumns + column_of(index), {});
        }
      }
      commit_copies();
    }
  }

  // The fragment of a loaded plane.
  template <u32 kIndex, u32 kFragment>
  __device__ __forceinline__ void take_plane(u32 (&words)[4], u32 plane, u32 thread) const {
    if (plane < kTraits.word_loads()) {
      const PlanePlace place =
          plane_place(kTraits.natural_half, kTraits.wide_loads, plane, kFragment);
      const SharedAddress first = slot(kIndex) + fragment_offset(thread, 0, kSubTileColumns);
      load_matrices(words, (first ^ fragment_step(place.fragment)) + place.plane * kSubTileBytes);
    } else {
      load_byte_rows(words, slot(kIndex) + kTraits.load_offset(plane, kSubTileBytes), thread,
                     kFragment);
    }
  }

  // Writes the fragment of a plane that is to be stored.
  template <u32 kIndex, u32 kFragment>
  __device__ __forceinline__ void leave_plane(const u32 (&words)[4], u32 plane, u32 thread) const {
    const PlanePlace place =
        plane_place(kTraits.natural_half, kTraits.wide_stores, plane, kFragment);
    const SharedAddress first = slot(kIndex) + pair_offset(thread);
    stage_fragment(first + kTraits.store_plane(place.plane) * kSubTileBytes, place.fragment, words);
  }

  // Stores the planes of a sub-tile and loads those of the next sub-tile that uses the slot.
  template <u32 kIndex, class Arguments>
  __device__ __forceinline__ void pass_on(const Arguments& arguments,
                                          const FragmentPosition& tile) const {
    if constexpr (kTraits.stores != 0) {
      __syncwarp();
#pragma unroll
      for (u32 plane = 0; plane < kTraits.stores; ++plane) {
        Space::store(arguments, plane, tile.partial_row() * kWgmmaM + row_of(kIndex),
                     tile.partial_column() * kSubTileColumns + column_of(kIndex),
                     slot(kIndex) + kTraits.store_plane(plane) * kSubTileBytes);
      }
    }
    __syncwarp();
    load(arguments, tile, kIndex + kSlots);
  }

  template <u32 kBlock, u32 kFragment>
  __device__ __forceinline__ static void take_fragment(
      float (&taken)[kTraits.parts][kFragmentElements], const Accumulators& accumulators) {
#pragma unroll
    for (u32 part = 0; part < kTraits.parts; ++part) {
#pragma unroll
      for (u32 i = 0; i < kFragmentElements; ++i)
        taken[part][i] = accumulators[kBlock][part][kFragment][i / 4][i % 4];
    }
  }

  // Computes the group sums of the span that begins with sub-tile kIndex.
  template <u32 kBlock, u32 kIndex, class Arguments, class Groups>
  __device__ __forceinline__ void walk_groups(const Arguments& arguments,
                                              const typename Space::Rows& rows,
                                              const FragmentPosition& first,
                                              const Accumulators& accumulators,
                                              Groups& groups) const {
    unrolled<kTraits.group_walks>([&](auto walk) {
      constexpr u32 kWalk = decltype(walk)::value;
      FragmentPosition position = first;
      unrolled<kSpan / kFragmentColumns>([&](auto fragment) {
        constexpr u32 kFragment = decltype(fragment)::value;
        u32 loaded[larger(1, kTraits.loads)][4];
        if constexpr (kTraits.group_loads != 0) {
#pragma unroll
          for (u32 plane = 0; plane < kTraits.loads; ++plane) {
            if ((kTraits.group_loads >> plane & 1) != 0)
              take_plane<kBlock * kSubTiles + kIndex, kFragment>(loaded[plane], plane,
                                                                 first.thread);
          }
        }
        float acc[kTraits.parts][kFragmentElements];
        take_fragment<kBlock, kIndex * kFragments + kFragment>(acc, accumulators);
        Space::template walk_groups<kWalk, kBlock, kFragment>(arguments, rows, groups, acc, loaded,
                                                              position);
        position.column += kFragmentColumns;
      });
      Space::template end_walk<kWalk, kBlock>(arguments, rows, groups, first);
    });
  }
};

template <Config kConfig, RingShape kRing, class Space, class Arguments>
__device__ __forceinline__ void run_tile(const Arguments& arguments, TileCoord place,
                                         SharedAddress shared) {
  using Main = Mainloop<kConfig, Space>;
  constexpr EpilogueTraits kTraits = Space::kTraits;
  const TileCoord tile{.m = place.m * kConfig.tile_m, .n = place.n * kConfig.base_columns(kTraits)};
  // The shuffle tells the compiler that the group is the same in all threads of a warp. The
  // epilogue calls it again, so that no register holds the group and the position during the
  // mainloop.
  const auto group_of_thread = [] { return __shfl_sync(~0u, threadIdx.x / kWarpgroupSize, 0); };
  const auto place_of_group = [](u32 group) {
    constexpr bool kSplitsColumns = kConfig.splits_columns(Space::kTraits);
    return TileCoord{.m = kSplitsColumns ? 0 : group * Main::kBlocks * kBlockRows,
                     .n = kSplitsColumns ? group * kConfig.group_columns(Space::kTraits) : 0};
  };
  typename Main::Accumulators accumulators;
  {
    const TileCoord own = place_of_group(group_of_thread());
    Main{.stages = shared}.run(arguments, tile, own.m, own.n, accumulators);
  }
  const u32 group = group_of_thread();
  const TileCoord own = place_of_group(group);
  const u32 thread = thread_of_group();
  const FragmentPosition position{.row = tile.m + own.m + fragment_row(thread, 0),
                                  .column = tile.n + own.n + fragment_column(thread, 0),
                                  .thread = thread,
                                  .rows = Space::rows(arguments),
                                  .columns = Space::columns(arguments)};
  using Epilogue = TileEpilogue<kConfig, kRing, Space>;
  const Epilogue epilogue{
      .planes = shared + group * (Epilogue::kSlots * slot_bytes(kTraits)),
      .scratch = shared + scratch_at(kConfig) + group * (kScratchBuffers * scratch_bytes(kRing))};
  epilogue.begin(arguments, position);
  typename Space::Rows rows;
  Space::begin_tile(arguments, rows, position);
  epilogue.run(arguments, rows, position, accumulators);
}

// Passes a space type as a function argument.
template <class Space>
struct SpaceTag {
  using Type = Space;
};

// Each CTA computes one tile. Tiles are numbered in the order of the spaces.
template <Config kConfig, class... Spaces, class Arguments>
__device__ __forceinline__ void program_kernel(const Arguments& arguments) {
  constexpr RingShape kRing{.column_partials = [] {
    u32 most = 0;
    ((most = larger(most, Spaces::kTraits.column_partials)), ...);
    return most;
  }()};
  const SharedAddress shared = launch_memory();
  wait_for_predecessor();
  u32 index = blockIdx.x;
  bool is_done = false;
  const auto visit = [&](auto tag) {
    using Space = typename decltype(tag)::Type;
    const TileOrder order = Space::order(arguments);
    if (is_done || index >= order.count()) {
      index -= order.count();
      return;
    }
    is_done = true;
    run_tile<kConfig, kRing, Space>(arguments, order.cluster_tile(index), shared);
  };
  (visit(SpaceTag<Spaces>{}), ...);
}

}  // namespace coda::device::sm80
