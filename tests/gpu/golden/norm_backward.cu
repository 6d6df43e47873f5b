// program norm_backward {
//   acc = gemm(dz[M, K]:bf16, w[K, N]:bf16)
//   x = tile(x[M, N]:bf16)
//   v = acc * per_column(norm[N]:bf16)
//   v_2 = x * per_row(row_factor[M])
//   store(dx, tile(dx[M, N]:bf16) + v + v_2)
//   column_partial(d_norm, sum(x * acc))
// }
#include "device/arguments.cuh"
#include "device/epilogue/fragment_values.cuh"
#include "device/epilogue/column_partial.cuh"
#include "device/sm90/program_kernel.cuh"

namespace coda::device {

constexpr GemmConfig kConfig{.tile_m = 128, .tile_n = 128, .cluster_m = 1, .cluster_n = 2, .stages = 5, 
                             .schedule = Schedule::ping_pong, .layout = OperandLayout::nn, .element = Element::bf16};

// Descriptors.
enum : u32 {
  map_x_tile,
  map_dx_tile,
  map_dz,
  map_w,
};
// Addresses.
enum : u32 {
  at_norm,
  at_row_factor,
  at_d_norm,
  tile_counter,
};
// Sizes, strides (elements between rows), tile orders.
enum : u32 {
  stride_d_norm,
  rows_0,
  k_blocks_0_0,
  columns_0,
  band_0,
  tile_columns_0,
  tile_rows_0,
};
using Arguments = KernelArguments<4, 4, 7>;

struct Space0 {
  static constexpr EpilogueTraits kTraits{.parts = 1, .loads = 2, .stores = 1, .column_partials = 1};

  __device__ __forceinline__ static u32 rows(const Arguments& a) {
    return a.numbers[rows_0];
  }

  __device__ __forceinline__ static u32 columns(const Arguments& a) {
    return a.numbers[columns_0];
  }

  __device__ __forceinline__ static TileOrder order(const Arguments& a) {
    return {.rows = a.numbers[tile_rows_0], .columns = a.numbers[tile_columns_0], .band = a.numbers[band_0]};
  }

  __device__ __forceinline__ static const TensorMap* a(const Arguments& a, u32 segment) {
    return &a.maps[map_dz];
  }

  __device__ __forceinline__ static const TensorMap* b(const Arguments& a, u32 segment, u32 part) {
    return &a.maps[map_w];
  }

  __device__ __forceinline__ static u32 k_blocks(const Arguments& a, u32 segment) {
    return a.numbers[k_blocks_0_0];
  }

  __device__ __forceinline__ static void load(const Arguments& a, u32 plane, SharedAddress destination, u32 row, u32 column,
                              SharedAddress barrier) {
    if (plane == 0) tma_load_once(destination, &a.maps[map_x_tile], column, row, barrier);
    if (plane == 1) tma_load_once(destination, &a.maps[map_dx_tile], column, row, barrier);
  }

  __device__ __forceinline__ static void store(const Arguments& a, u32 plane, u32 row, u32 column, SharedAddress source) {
    if (plane == 0) tma_store_once(&a.maps[map_dx_tile], column, row, source);
  }

  struct Rows {
    float row_factor[kConfig.blocks_m()][2];
  };

  __device__ __forceinline__ static void begin_tile(const Arguments& a, Rows& rows, const FragmentPosition& at) {
#pragma unroll
    for (u32 block = 0; block < kConfig.blocks_m(); ++block) {
#pragma unroll
      for (u32 side = 0; side < 2; ++side) {
        const u32 row = at.row + block * kWgmmaM + 8 * side;
        const bool is_inside = row < a.numbers[rows_0];
        const float row_factor = is_inside ? load_element<Element::f32>(a.pointers[at_row_factor], row) : 0.0f;
        rows.row_factor[block][side] = row_factor;
      }
    }
  }

  struct SubTile {
    ColumnValues<Element::bf16> norm_at;
    ColumnReduction<Reduction::sum> d_norm;
  };

  template <u32 kBlock>
  __device__ __forceinline__ static void begin_sub_tile(const Arguments& a, const Rows& rows, SubTile& sub,
                                      const FragmentPosition& at) {
    sub.norm_at.load(a.pointers[at_norm], at, [&](u32 column) { return column; });
  }

  template <u32 kBlock, u32 kFragment>
  __device__ __forceinline__ static void fragment(const Arguments& a, const Rows& rows, SubTile& sub,
                             const float (&accumulators)[1][8],
                             const u32 (&loaded)[2][4],
                             u32 (&stored)[1][4], const FragmentPosition& at) {
    Elements<2> d_norm_values[kPairs];
#pragma unroll
    for (u32 pair = 0; pair < kPairs; ++pair) {
      const auto acc = pair_of(accumulators[0], pair);
      const auto x = unpack<Element::bf16>(loaded[0][pair]);
      const auto v3 = acc * sub.norm_at.at(kFragment, pair);
      const auto v5 = x * rows.row_factor[kBlock][pair % 2];
      const auto dx = unpack<Element::bf16>(loaded[1][pair]);
      const auto v7 = dx + v3;
      const auto dx_2 = v7 + v5;
      stored[0][pair] = pack<Element::bf16>(dx_2);
      const auto v10 = x * acc;
      d_norm_values[pair] = v10;
    }
    sub.d_norm.template add<kFragment>(d_norm_values, at);
  }

  template <u32 kBlock>
  __device__ __forceinline__ static void end_sub_tile(const Arguments& a, const Rows& rows, SubTile& sub,
                                    const FragmentPosition& at, SharedAddress scratch) {
    sub.d_norm.stage(scratch + 0 * kColumnScratchBytes, at);
    synchronize_warpgroup();
    store_column_partial<Reduction::sum>(a.pointers[at_d_norm], a.numbers[stride_d_norm], scratch + 0 * kColumnScratchBytes, at, [&](u32 column) { return column; });
  }
};

extern "C" __global__ void __launch_bounds__(kThreads, 1)
__cluster_dims__(kConfig.cluster_size(), 1, 1)
norm_backward_kernel(const __grid_constant__ Arguments a) {
  program_kernel<kConfig, Space0>(a, a.pointers[tile_counter]);
}

}  // namespace coda::device
