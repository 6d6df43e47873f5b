// SPDX-License-Identifier: Apache-2.0
// Written by hand, in the form that the emitter gives every kernel. The data gradient of the
// down-projection with SwiGLU's derivative: two loads, three stores, two partial sums along rows.
//
//   da = gemm(dx[M, K]:bf16, w[K, N]:bf16, nn)
//   gate = tile(gate[M, N]:bf16)
//   up = tile(up[M, N]:bf16)
//   sig = sigmoid(gate)
//   act = gate * sig
//   r = per_row(r[M])
//   dup = da * act
//   through = da * up
//   dgate = sig * through + sig * (1 - sig) * (gate * through)
//   store(a:bf16, act * up)
//   store(d_gate:bf16, dgate * r)
//   store(d_up:bf16, dup * r)
//   row_partial(s_up, sum(up * dup))
//   row_partial(s_gate, sum(gate * dgate))
#include "device/arguments.cuh"
#include "device/epilogue/fragment_values.cuh"
#include "device/sm90/program_kernel.cuh"

namespace coda::device {

constexpr GemmConfig kConfig{.tile_m = 128,
                             .tile_n = 128,
                             .cluster_m = 2,
                             .stages = 5,
                             .schedule = Schedule::ping_pong,
                             .layout = OperandLayout::nn};

using Arguments = KernelArguments<7, 4, 7>;

struct Space0 {
  static constexpr EpilogueTraits kTraits{.loads = 2, .stores = 3};

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

  __device__ __forceinline__ static void load(const Arguments& a, u32 plane, SharedAddress destination,
                                              u32 row, u32 column, SharedAddress barrier) {
    if (plane == 0) tma_load_once(destination, &a.maps[2], column, row, barrier);
    if (plane == 1) tma_load_once(destination, &a.maps[3], column, row, barrier);
  }
  __device__ __forceinline__ static void store(const Arguments& a, u32 plane, u32 row, u32 column,
                                               SharedAddress source) {
    if (plane == 0) tma_store_once(&a.maps[4], column, row, source);
    if (plane == 1) tma_store_once(&a.maps[5], column, row, source);
    if (plane == 2) tma_store_once(&a.maps[6], column, row, source);
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

  struct SubTile {
    Reduced<Reduction::sum> s_up[2];
    Reduced<Reduction::sum> s_gate[2];
  };
  template <u32 kBlock>
  __device__ __forceinline__ static void begin_sub_tile(const Arguments&, const Rows&, SubTile&,
                                                        const FragmentPosition&) {}

  template <u32 kBlock, u32 kFragment>
  __device__ __forceinline__ static void fragment(const Arguments&, const Rows& rows, SubTile& sub,
                                               const float (&acc)[1][8], const u32 (&loaded)[2][4],
                                               u32 (&stored)[3][4], const FragmentPosition& at) {
#pragma unroll
    for (u32 pair = 0; pair < kPairs; ++pair) {
      const u32 column = at.column + 8 * (pair / 2);
      const u32 inside = inside_pair(column, at.columns);
      const float r = rows.r[kBlock][pair % 2];
      const auto da = pair_of(acc[0], pair);
      const auto gate = unpack<Element::bf16>(loaded[0][pair]);
      const auto up = unpack<Element::bf16>(loaded[1][pair]);
      const auto sig = sigmoid(gate);
      const auto act = gate * sig;
      const auto dup = da * act;
      const auto through = da * up;
      const auto dgate = sig * through + sig * (1.0f - sig) * (gate * through);
      stored[0][pair] = pack<Element::bf16>(act * up);
      stored[1][pair] = pack<Element::bf16>(dgate * r);
      stored[2][pair] = pack<Element::bf16>(dup * r);
      add_to_row(sub.s_up[pair % 2], up * dup, inside);
      add_to_row(sub.s_gate[pair % 2], gate * dgate, inside);
    }
  }
  template <u32 kBlock>
  __device__ __forceinline__ static void end_sub_tile(const Arguments& a, const Rows&, SubTile& sub,
                                                      const FragmentPosition& at, SharedAddress) {
    store_row_partial(a.pointers[1], a.numbers[6], sub.s_up, at);
    store_row_partial(a.pointers[2], a.numbers[6], sub.s_gate, at);
  }
};

extern "C" __global__ void __launch_bounds__(kThreads, 1)
    __cluster_dims__(kConfig.cluster_size(), 1, 1)
        swiglu_backward(const __grid_constant__ Arguments arguments) {
  program_kernel<kConfig, Space0>(arguments, arguments.pointers[3]);
}

}  // namespace coda::device
