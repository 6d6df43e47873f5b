// SPDX-License-Identifier: Apache-2.0
// A tile space for measurement: the plain store, and with it any number of tile loads and further
// stores, with only enough arithmetic that each value is used. What they cost is the movement
// alone. With l the loaded planes, store 0 is acc + sum(l), and store s > 0 is acc / (s + 1) + l[s
// % loads].
#pragma once

#include "device/ptx/matrix_move.cuh"
#include "device/sm90/ptx/tma.cuh"
#include "lab/hopper_table/synthetic_arguments.cuh"

namespace coda::device {

template <GemmConfig kConfig, EpilogueTraits kMoved>
struct SyntheticSpace {
  static_assert(kMoved.planes() <= kMaxSyntheticPlanes && kMoved.stores >= 1);

  static constexpr EpilogueTraits kTraits = kMoved;
  using Arguments = SyntheticArguments;

  struct Rows {};
  struct SubTile {};

  // Nothing here asks for its position.
  __device__ __forceinline__ static u32 rows(const Arguments&) { return 0; }
  __device__ __forceinline__ static u32 columns(const Arguments&) { return 0; }

  __device__ __forceinline__ static TileOrder order(const Arguments& arguments) {
    return arguments.order;
  }
  __device__ __forceinline__ static const TensorMap* a(const Arguments& arguments, u32) {
    return &arguments.a;
  }
  __device__ __forceinline__ static const TensorMap* b(const Arguments& arguments, u32, u32) {
    return &arguments.b;
  }
  __device__ __forceinline__ static u32 k_blocks(const Arguments& arguments, u32) {
    return arguments.k_blocks;
  }

  __device__ __forceinline__ static void load(const Arguments& arguments, u32 plane,
                                              SharedAddress destination, u32 row, u32 column,
                                              SharedAddress barrier) {
    tma_load_once(destination, &arguments.loads[plane], column, row, barrier);
  }
  __device__ __forceinline__ static void store(const Arguments& arguments, u32 plane, u32 row,
                                               u32 column, SharedAddress source) {
    tma_store_once(&arguments.stores[plane], column, row, source);
  }

  __device__ __forceinline__ static void begin_tile(const Arguments&, Rows&,
                                                    const FragmentPosition&) {}
  template <u32 kBlock>
  __device__ __forceinline__ static void begin_sub_tile(const Arguments&, const Rows&, SubTile&,
                                                        const FragmentPosition&) {}
  template <u32 kBlock>
  __device__ __forceinline__ static void end_sub_tile(const Arguments&, const Rows&, SubTile&,
                                                      const FragmentPosition&, SharedAddress) {}

  template <u32 kBlock, u32 kFragment>
  __device__ __forceinline__ static void fragment(const Arguments&, const Rows&, SubTile&,
                                                  const float (&acc)[kMoved.parts][8],
                                                  const u32 (&loaded)[larger(1, kMoved.loads)][4],
                                                  u32 (&stored)[larger(1, kMoved.stores)][4],
                                                  const FragmentPosition&) {
#pragma unroll
    for (u32 pair = 0; pair < 4; ++pair) {
      float low[larger(1, kMoved.loads)];
      float high[larger(1, kMoved.loads)];
      float sum_low = acc[0][2 * pair];
      float sum_high = acc[0][2 * pair + 1];
      if constexpr (kMoved.loads != 0) {
#pragma unroll
        for (u32 plane = 0; plane < kMoved.loads; ++plane) {
          unpack<kConfig.element>(loaded[plane][pair], low[plane], high[plane]);
          sum_low += low[plane];
          sum_high += high[plane];
        }
      }
      stored[0][pair] = pack<kConfig.element>(sum_low, sum_high);
#pragma unroll
      for (u32 plane = 1; plane < kMoved.stores; ++plane) {
        const float scale = 1.0f / static_cast<float>(plane + 1);
        float a = acc[0][2 * pair] * scale;
        float b = acc[0][2 * pair + 1] * scale;
        if constexpr (kMoved.loads != 0) {
          a += low[plane % kMoved.loads];
          b += high[plane % kMoved.loads];
        }
        stored[plane][pair] = pack<kConfig.element>(a, b);
      }
    }
  }
};

}  // namespace coda::device
