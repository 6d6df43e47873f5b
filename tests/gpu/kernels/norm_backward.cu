// SPDX-License-Identifier: Apache-2.0
// Written by hand, in the form that the emitter gives every kernel. The data gradient of q, k and v
// (three K segments) with the derivative of the norm before them: two tile loads, two stores (one
// over a load's tensor), vectors of rows and of columns, and the norm's weight gradient in partial
// sums along columns.
//
//   acc = gemm(dq[M, Kq]:bf16, wq[Kq, N]:bf16; dk[M, Kk]:bf16, wk[Kk, N]:bf16; dv..., wv...)
//   x = tile(x[M, N]:bf16)
//   r = per_row(r[M])
//   store(h:bf16, x * r)
//   v = acc * r
//   store(dx:bf16, v * per_column(norm[N]:bf16) + (tile(dx[M, N]:bf16) + x * per_row(s[M])))
//   column_partial(d_norm, sum(x * v))
#include "device/arguments.cuh"
#include "device/epilogue/fragment_values.cuh"
#include "device/epilogue/column_partial.cuh"
#include "device/sm90/program_kernel.cuh"

namespace coda::device {

constexpr GemmConfig kConfig{.tile_m = 128,
                             .tile_n = 128,
                             .cluster_m = 2,
                             .stages = 5,
                             .schedule = Schedule::ping_pong,
                             .layout = OperandLayout::nn};

using Arguments = KernelArguments<9, 5, 9>;

struct Space0 {
  static constexpr EpilogueTraits kTraits{.segments = 3, .loads = 2, .stores = 2, .column_partials = 1};

  __device__ __forceinline__ static u32 rows(const Arguments& a) { return a.numbers[0]; }
  __device__ __forceinline__ static u32 columns(const Arguments& a) { return a.numbers[1]; }
  __device__ __forceinline__ static TileOrder order(const Arguments& a) {
    return {.rows = a.numbers[2], .columns = a.numbers[3], .band = a.numbers[4]};
  }

  __device__ __forceinline__ static const TensorMap* a(const Arguments& a, u32 segment) {
    if (segment == 0) return &a.maps[0];
    if (segment == 1) return &a.maps[1];
    return &a.maps[2];
  }
  __device__ __forceinline__ static const TensorMap* b(const Arguments& a, u32 segment, u32) {
    if (segment == 0) return &a.maps[3];
    if (segment == 1) return &a.maps[4];
    return &a.maps[5];
  }
  __device__ __forceinline__ static u32 k_blocks(const Arguments& a, u32 segment) {
    if (segment == 0) return a.numbers[5];
    if (segment == 1) return a.numbers[6];
    return a.numbers[7];
  }

  __device__ __forceinline__ static void load(const Arguments& a, u32 plane, SharedAddress destination,
                                              u32 row, u32 column, SharedAddress barrier) {
    if (plane == 0) tma_load_once(destination, &a.maps[6], column, row, barrier);
    if (plane == 1) tma_load_once(destination, &a.maps[7], column, row, barrier);
  }
  __device__ __forceinline__ static void store(const Arguments& a, u32 plane, u32 row, u32 column,
                                               SharedAddress source) {
    if (plane == 0) tma_store_once(&a.maps[8], column, row, source);
    if (plane == 1) tma_store_once(&a.maps[7], column, row, source);
  }

  struct Rows {
    float r[kConfig.blocks_m()][2];
    float s[kConfig.blocks_m()][2];
  };
  __device__ __forceinline__ static void begin_tile(const Arguments& a, Rows& rows, const FragmentPosition& at) {
#pragma unroll
    for (u32 block = 0; block < kConfig.blocks_m(); ++block) {
#pragma unroll
      for (u32 side = 0; side < 2; ++side) {
        const u32 row = at.row + block * kWgmmaM + 8 * side;
        const bool is_inside = row < a.numbers[0];
        rows.r[block][side] = is_inside ? load_element<Element::f32>(a.pointers[0], row) : 0.0f;
        rows.s[block][side] = is_inside ? load_element<Element::f32>(a.pointers[1], row) : 0.0f;
      }
    }
  }

  struct SubTile {
    ColumnValues<Element::bf16> norm;
    ColumnReduction<Reduction::sum> d_norm;
  };
  template <u32 kBlock>
  __device__ __forceinline__ static void begin_sub_tile(const Arguments& a, const Rows&,
                                                        SubTile& sub, const FragmentPosition& at) {
    sub.norm.load(a.pointers[2], at, [](u32 column) { return column; });
  }

  template <u32 kBlock, u32 kFragment>
  __device__ __forceinline__ static void fragment(const Arguments&, const Rows& rows, SubTile& sub,
                                               const float (&acc)[1][8], const u32 (&loaded)[2][4],
                                               u32 (&stored)[2][4], const FragmentPosition& at) {
    Elements<2> d_norm[kPairs];
#pragma unroll
    for (u32 pair = 0; pair < kPairs; ++pair) {
      const float r = rows.r[kBlock][pair % 2];
      const auto x = unpack<Element::bf16>(loaded[0][pair]);
      const auto dx = unpack<Element::bf16>(loaded[1][pair]);
      stored[0][pair] = pack<Element::bf16>(x * r);
      const auto v = pair_of(acc[0], pair) * r;
      const auto norm = sub.norm.at(kFragment, pair);
      stored[1][pair] = pack<Element::bf16>(v * norm + (dx + x * rows.s[kBlock][pair % 2]));
      d_norm[pair] = x * v;
    }
    sub.d_norm.add<kFragment>(d_norm, at);
  }
  template <u32 kBlock>
  __device__ __forceinline__ static void end_sub_tile(const Arguments& a, const Rows&, SubTile& sub,
                                                      const FragmentPosition& at, SharedAddress scratch) {
    sub.d_norm.stage(scratch, at);
    synchronize_warpgroup();
    store_column_partial<Reduction::sum>(a.pointers[3], a.numbers[8], scratch, at);
  }
};

extern "C" __global__ void __launch_bounds__(kThreads, 1)
    __cluster_dims__(kConfig.cluster_size(), 1, 1)
        norm_backward(const __grid_constant__ Arguments arguments) {
  program_kernel<kConfig, Space0>(arguments, arguments.pointers[4]);
}

}  // namespace coda::device
