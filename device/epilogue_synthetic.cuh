// SPDX-License-Identifier: Apache-2.0
// Epilogues for measurement: the plain store, and with it any number of tile loads and further
// stores, with only enough arithmetic that each value is used. What they cost is the movement
// alone. With l the loaded planes, store 0 is acc + sum(l), and store s > 0 is acc / (s + 1) + l[s
// % loads].
#pragma once

#include "device/matrix_move.cuh"
#include "device/shared_layout.cuh"
#include "device/synthetic_arguments.cuh"
#include "device/tma.cuh"

namespace coda::device {

template <GemmConfig kConfig, EpilogueShape kMoved>
struct SyntheticEpilogue {
  static_assert(kMoved.planes() <= kMaxSyntheticPlanes && kMoved.stores >= 1);

  static constexpr EpilogueShape kShape = kMoved;
  using Arguments = SyntheticArguments;

  __device__ __forceinline__ static void load(const Arguments& arguments, u32 plane,
                                              u32 destination, TileCoord origin, u32 barrier) {
    tma_load_once(destination, &arguments.loads[plane], origin.n, origin.m, barrier);
  }

  __device__ __forceinline__ static void store(const Arguments& arguments, u32 plane,
                                               TileCoord origin, u32 source) {
    tma_store_once(&arguments.stores[plane], origin.n, origin.m, source);
  }

  __device__ __forceinline__ static void apply(const Arguments&, const float* accumulators,
                                               const u32 (&loaded)[larger(1, kMoved.loads)][4],
                                               u32 (&stored)[kMoved.stores][4]) {
#pragma unroll
    for (u32 pair = 0; pair < 4; ++pair) {
      float low[larger(1, kMoved.loads)];
      float high[larger(1, kMoved.loads)];
      float sum_low = accumulators[2 * pair];
      float sum_high = accumulators[2 * pair + 1];
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
        float a = accumulators[2 * pair] * scale;
        float b = accumulators[2 * pair + 1] * scale;
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
