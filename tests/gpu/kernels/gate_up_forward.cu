// SPDX-License-Identifier: Apache-2.0
// Written by hand, in the form that the emitter gives every kernel. Gate and up in one tile, from
// two weights (parts), the norm's row scale, SwiGLU, and the pre-activations stored: three stores.
//
//   gate_acc = gemm(h[M, K]:bf16, w_gate[N, K]:bf16, nt)
//   up_acc = gemm(h, w_up[N, K]:bf16, nt)
//   r = per_row(r[M])
//   gate = gate_acc * r
//   up = up_acc * r
//   store(gate:bf16, gate)
//   store(up:bf16, up)
//   store(a:bf16, gate * sigmoid(gate) * up)
#include "device/arguments.cuh"
#include "device/epilogue/fragment_values.cuh"
#include "device/sm90/program_kernel.cuh"

namespace coda::device {

constexpr GemmConfig kConfig{.tile_m = 128,
                             .tile_n = 256,
                             .cluster_m = 2,
                             .stages = 3,
                             .schedule = Schedule::cooperative,
                             .layout = OperandLayout::tn};

using Arguments = KernelArguments<6, 2, 6>;

struct Space0 {
  static constexpr EpilogueTraits kTraits{.parts = 2, .stores = 3};

  __device__ __forceinline__ static u32 rows(const Arguments& a) { return a.numbers[0]; }
  __device__ __forceinline__ static u32 columns(const Arguments& a) { return a.numbers[1]; }
  __device__ __forceinline__ static TileOrder order(const Arguments& a) {
    return {.rows = a.numbers[2], .columns = a.numbers[3], .band = a.numbers[4]};
  }

  __device__ __forceinline__ static const TensorMap* a(const Arguments& a, u32) {
    return &a.maps[0];
  }
  __device__ __forceinline__ static const TensorMap* b(const Arguments& a, u32, u32 part) {
    if (part == 0) return &a.maps[1];
    return &a.maps[2];
  }
  __device__ __forceinline__ static u32 k_blocks(const Arguments& a, u32) { return a.numbers[5]; }

  __device__ __forceinline__ static void store(const Arguments& a, u32 plane, u32 row, u32 column,
                                               SharedAddress source) {
    if (plane == 0) tma_store_once(&a.maps[3], column, row, source);
    if (plane == 1) tma_store_once(&a.maps[4], column, row, source);
    if (plane == 2) tma_store_once(&a.maps[5], column, row, source);
  }

  struct Rows {
    float r[kConfig.blocks_m()][2];
  };
  __device__ __forceinline__ static void begin_tile(const Arguments& a, Rows& rows, const FragmentPosition& at) {
#pragma unroll
    for (u32 block = 0; block < kConfig.blocks_m(); ++block) {
#pragma unroll
      for (u32 side = 0; side < 2; ++side) {
        const u32 row = at.row + block * kWgmmaM + 8 * side;
        const bool is_inside = row < a.numbers[0];
        rows.r[block][side] = is_inside ? load_element<Element::f32>(a.pointers[0], row) : 0.0f;
      }
    }
  }

  struct SubTile {};
  template <u32 kBlock>
  __device__ __forceinline__ static void begin_sub_tile(const Arguments&, const Rows&, SubTile&,
                                                        const FragmentPosition&) {}

  template <u32 kBlock, u32 kFragment>
  __device__ __forceinline__ static void fragment(const Arguments&, const Rows& rows, SubTile&,
                                               const float (&acc)[2][8], const u32 (&)[1][4],
                                               u32 (&stored)[3][4], const FragmentPosition&) {
#pragma unroll
    for (u32 pair = 0; pair < kPairs; ++pair) {
      const float r = rows.r[kBlock][pair % 2];
      const auto gate = pair_of(acc[0], pair) * r;
      const auto up = pair_of(acc[1], pair) * r;
      stored[0][pair] = pack<Element::bf16>(gate);
      stored[1][pair] = pack<Element::bf16>(up);
      stored[2][pair] = pack<Element::bf16>(gate * sigmoid(gate) * up);
    }
  }
  template <u32 kBlock>
  __device__ __forceinline__ static void end_sub_tile(const Arguments&, const Rows&, SubTile&,
                                                      const FragmentPosition&, SharedAddress) {}
};

extern "C" __global__ void __launch_bounds__(kThreads, 1)
    __cluster_dims__(kConfig.cluster_size(), 1, 1)
        gate_up_forward(const __grid_constant__ Arguments arguments) {
  program_kernel<kConfig, Space0>(arguments, arguments.pointers[1]);
}

}  // namespace coda::device
