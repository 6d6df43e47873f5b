// program swiglu {
//   acc = gemm(h[M, K]:bf16, w_gate[N, K]:bf16)
//   acc_2 = gemm(h, w_up[N, K]:bf16)
//   r = per_row(r[M])
//   gate = acc * r
//   up = acc_2 * r
//   store(gate:bf16, gate)
//   store(up:bf16, up)
//   store(a:bf16, gate * sigmoid(gate) * up)
// }
#include "device/arguments.cuh"
#include "device/epilogue/fragment_values.cuh"
#include "device/sm90/program_kernel.cuh"

namespace coda::device {

constexpr GemmConfig kConfig{.tile_m = 128, .tile_n = 128, .cluster_m = 1, .cluster_n = 2, .stages = 6, 
                             .schedule = Schedule::ping_pong, .layout = OperandLayout::tn, .element = Element::bf16};

// Descriptors.
enum : u32 {
  map_gate_tile,
  map_up_tile,
  map_a_tile,
  map_h,
  map_w_gate,
  map_w_up,
};
// Addresses.
enum : u32 {
  at_r,
  tile_counter,
};
// Sizes, strides (elements between rows), tile orders.
enum : u32 {
  rows_0,
  k_blocks_0_0,
  columns_0,
  band_0,
  tile_columns_0,
  tile_rows_0,
};
using Arguments = KernelArguments<6, 2, 6>;

struct Space0 {
  static constexpr EpilogueTraits kTraits{.parts = 2, .loads = 0, .stores = 3};

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
    return &a.maps[map_h];
  }

  __device__ __forceinline__ static const TensorMap* b(const Arguments& a, u32 segment, u32 part) {
    if (part == 0) return &a.maps[map_w_gate];
    return &a.maps[map_w_up];
  }

  __device__ __forceinline__ static u32 k_blocks(const Arguments& a, u32 segment) {
    return a.numbers[k_blocks_0_0];
  }

  __device__ __forceinline__ static void store(const Arguments& a, u32 plane, u32 row, u32 column, SharedAddress source) {
    if (plane == 0) tma_store_once(&a.maps[map_gate_tile], column, row, source);
    if (plane == 1) tma_store_once(&a.maps[map_up_tile], column, row, source);
    if (plane == 2) tma_store_once(&a.maps[map_a_tile], column, row, source);
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
        const bool is_inside = row < a.numbers[rows_0];
        const float r = is_inside ? load_element<Element::f32>(a.pointers[at_r], row) : 0.0f;
        rows.r[block][side] = r;
      }
    }
  }

  struct SubTile {
  };

  template <u32 kBlock>
  __device__ __forceinline__ static void begin_sub_tile(const Arguments& a, const Rows& rows, SubTile& sub,
                                      const FragmentPosition& at) {}

  template <u32 kBlock, u32 kFragment>
  __device__ __forceinline__ static void fragment(const Arguments& a, const Rows& rows, SubTile& sub,
                             const float (&accumulators)[2][8],
                             const u32 (&loaded)[1][4],
                             u32 (&stored)[3][4], const FragmentPosition& at) {
#pragma unroll
    for (u32 pair = 0; pair < kPairs; ++pair) {
      const auto acc = pair_of(accumulators[0], pair);
      const auto acc_2 = pair_of(accumulators[1], pair);
      const auto gate = acc * rows.r[kBlock][pair % 2];
      const auto up = acc_2 * rows.r[kBlock][pair % 2];
      stored[0][pair] = pack<Element::bf16>(gate);
      stored[1][pair] = pack<Element::bf16>(up);
      const auto v7 = sigmoid(gate);
      const auto v8 = gate * v7;
      const auto a_2 = v8 * up;
      stored[2][pair] = pack<Element::bf16>(a_2);
    }
  }

  template <u32 kBlock>
  __device__ __forceinline__ static void end_sub_tile(const Arguments& a, const Rows& rows, SubTile& sub,
                                    const FragmentPosition& at, SharedAddress scratch) {}
};

extern "C" __global__ void __launch_bounds__(kThreads, 1)
__cluster_dims__(kConfig.cluster_size(), 1, 1)
swiglu_kernel(const __grid_constant__ Arguments a) {
  program_kernel<kConfig, Space0>(a, a.pointers[tile_counter]);
}

}  // namespace coda::device
