// SPDX-License-Identifier: Apache-2.0
// Entry point and includes of kernels for tile spaces without a GEMM. A space is a struct with
//   static bool is_vector(arguments, block): every row starts at 16 bytes, and the columns of the
//   block's threads are whole vectors;
//   template <bool kVector> static void run(arguments, block, scratch): one block of its tiles.
#pragma once

#include "device/arguments.cuh"
#include "device/ptx/dependent_launch.cuh"
#include "device/tiles/tile_column_partial.cuh"
#include "device/tiles/tile_groups.cuh"
#include "device/tiles/tile_maximum.cuh"
#include "device/tiles/tile_row_partial.cuh"
#include "device/tiles/tile_select.cuh"
#include "device/tiles/tile_transposed.cuh"
#include "device/tiles/vector_access.cuh"

namespace coda::device {

// Floats of shared memory for a block's exchanges, followed by one float per warp for each maximum.
inline constexpr u32 kTileScratch = larger(kColumnScratch, kTransposedScratch);

template <class Space, class Arguments>
__device__ __forceinline__ void run_space(const Arguments& a, u32 block, float* scratch) {
  if (Space::is_vector(a, block)) {
    Space::template run<true>(a, block, scratch);
  } else {
    Space::template run<false>(a, block, scratch);
  }
}

}  // namespace coda::device
