// SPDX-License-Identifier: Apache-2.0
// Written by hand, in the form that the emitter gives every kernel. A weight gradient that is added
// to an fp32 buffer: nothing is staged, each thread adds its pairs of columns at the memory.
//
//   acc = gemm(dy[K, M]:bf16, x[K, N]:bf16, tn)
//   store(dw, tile(dw[M, N]) + acc)
#include "device/arguments.cuh"
#include "device/epilogue/fragment_values.cuh"
#include "device/sm90/program_kernel.cuh"

namespace coda::device {

constexpr GemmConfig kConfig{.tile_m = 128,
                             .tile_n = 256,
                             .cluster_m = 2,
                             .stages = 4,
                             .schedule = Schedule::cooperative,
                             .layout = OperandLayout::nt};

using Arguments = KernelArguments<2, 2, 7>;

struct Space0 {
  static constexpr EpilogueTraits kTraits{.stores = 0};

  __device__ __forceinline__ static u32 rows(const Arguments& a) { return a.numbers[0]; }
  __device__ __forceinline__ static u32 columns(const Arguments& a) { return a.numbers[1]; }
  __device__ __forceinline__ static TileOrder order(const Arguments& a) {
    return {.rows = a.numbers[2], .columns = a.numbers[3], .band = a.numbers[4]};
  }

  __device__ __forceinline__ static const TensorMap* a(const Arguments& a, u32) {
    return &a.maps[0];
  }
  __device__ __forceinline__ static const TensorMap* b(const Arguments& a, u32, u32) {
    return &a.maps[1];
  }
  __device__ __forceinline__ static u32 k_blocks(const Arguments& a, u32) { return a.numbers[5]; }

  struct Rows {};
  __device__ __forceinline__ static void begin_tile(const Arguments&, Rows&, const FragmentPosition&) {}

  struct SubTile {};
  template <u32 kBlock>
  __device__ __forceinline__ static void begin_sub_tile(const Arguments&, const Rows&, SubTile&,
                                                        const FragmentPosition&) {}

  template <u32 kBlock, u32 kFragment>
  __device__ __forceinline__ static void fragment(const Arguments& a, const Rows&, SubTile&,
                                               const float (&acc)[1][8], const u32 (&)[1][4],
                                               u32 (&)[1][4], const FragmentPosition& at) {
#pragma unroll
    for (u32 pair = 0; pair < kPairs; ++pair) {
      const u32 row = at.row + 8 * (pair % 2);
      const u32 column = at.column + 8 * (pair / 2);
      const u32 inside = row < at.rows ? inside_pair(column, at.columns) : 0;
      const u64 place = static_cast<u64>(row) * a.numbers[6] + column;
      add_pair(a.pointers[0], place, inside, pair_of(acc[0], pair));
    }
  }
  template <u32 kBlock>
  __device__ __forceinline__ static void end_sub_tile(const Arguments&, const Rows&, SubTile&,
                                                      const FragmentPosition&, SharedAddress) {}
};

extern "C" __global__ void __launch_bounds__(kThreads, 1)
    __cluster_dims__(kConfig.cluster_size(), 1, 1)
        weight_gradient(const __grid_constant__ Arguments arguments) {
  program_kernel<kConfig, Space0>(arguments, arguments.pointers[1]);
}

}  // namespace coda::device
