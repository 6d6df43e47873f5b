// program residual_norm {
//   acc = gemm(y[M, K]:bf16, w[N, K]:bf16)
//   x = as_stored(tile(x1[M, N]:bf16) + acc, bf16)
//   store(x:bf16, x)
//   store(h:bf16, x * per_column(norm[N]:bf16))
//   row_partial(squares, sum(x * x))
// }
#include "device/arguments.cuh"
#include "device/epilogue/fragment_values.cuh"
#include "device/sm90/program_kernel.cuh"

namespace coda::device {

constexpr GemmConfig kConfig{.tile_m = 128, .tile_n = 128, .cluster_m = 1, .cluster_n = 2, .stages = 6, 
                             .schedule = Schedule::ping_pong, .layout = OperandLayout::tn, .element = Element::bf16};

// Descriptors.
enum : u32 {
  map_x1_tile,
  map_x_tile,
  map_h_tile,
  map_y,
  map_w,
};
// Addresses.
enum : u32 {
  at_norm,
  at_squares,
  tile_counter,
};
// Sizes, strides (elements between rows), tile orders.
enum : u32 {
  stride_squares,
  k_blocks_0_0,
  rows_0,
  columns_0,
  band_0,
  tile_columns_0,
  tile_rows_0,
};
using Arguments = KernelArguments<5, 3, 7>;

struct Space0 {
  static constexpr EpilogueTraits kTraits{.parts = 1, .loads = 1, .stores = 2};

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
    return &a.maps[map_y];
  }

  __device__ __forceinline__ static const TensorMap* b(const Arguments& a, u32 segment, u32 part) {
    return &a.maps[map_w];
  }

  __device__ __forceinline__ static u32 k_blocks(const Arguments& a, u32 segment) {
    return a.numbers[k_blocks_0_0];
  }

  __device__ __forceinline__ static void load(const Arguments& a, u32 plane, SharedAddress destination, u32 row, u32 column,
                              SharedAddress barrier) {
    if (plane == 0) tma_load_once(destination, &a.maps[map_x1_tile], column, row, barrier);
  }

  __device__ __forceinline__ static void store(const Arguments& a, u32 plane, u32 row, u32 column, SharedAddress source) {
    if (plane == 0) tma_store_once(&a.maps[map_x_tile], column, row, source);
    if (plane == 1) tma_store_once(&a.maps[map_h_tile], column, row, source);
  }

  struct Rows {
  };

  __device__ __forceinline__ static void begin_tile(const Arguments& a, Rows& rows, const FragmentPosition& at) {}

  struct SubTile {
    ColumnValues<Element::bf16> norm_at;
    Reduced<Reduction::sum> squares[2];
  };

  template <u32 kBlock>
  __device__ __forceinline__ static void begin_sub_tile(const Arguments& a, const Rows& rows, SubTile& sub,
                                      const FragmentPosition& at) {
    sub.norm_at.load(a.pointers[at_norm], at, [&](u32 column) { return column; });
  }

  template <u32 kBlock, u32 kFragment>
  __device__ __forceinline__ static void fragment(const Arguments& a, const Rows& rows, SubTile& sub,
                             const float (&accumulators)[1][8],
                             const u32 (&loaded)[1][4],
                             u32 (&stored)[2][4], const FragmentPosition& at) {
#pragma unroll
    for (u32 pair = 0; pair < kPairs; ++pair) {
      const auto acc = pair_of(accumulators[0], pair);
      const auto x1 = unpack<Element::bf16>(loaded[0][pair]);
      const auto v2 = x1 + acc;
      const u32 x_bits = pack<Element::bf16>(v2);
      const auto x = unpack<Element::bf16>(x_bits);
      stored[0][pair] = x_bits;
      const auto h = x * sub.norm_at.at(kFragment, pair);
      stored[1][pair] = pack<Element::bf16>(h);
      const auto v8 = x * x;
      add_to_row(sub.squares[pair % 2], v8, 2);
    }
  }

  template <u32 kBlock>
  __device__ __forceinline__ static void end_sub_tile(const Arguments& a, const Rows& rows, SubTile& sub,
                                    const FragmentPosition& at, SharedAddress scratch) {
    store_row_partial(a.pointers[at_squares], a.numbers[stride_squares], sub.squares, at);
  }
};

extern "C" __global__ void __launch_bounds__(kThreads, 1)
__cluster_dims__(kConfig.cluster_size(), 1, 1)
residual_norm_kernel(const __grid_constant__ Arguments a) {
  program_kernel<kConfig, Space0>(a, a.pointers[tile_counter]);
}

}  // namespace coda::device
