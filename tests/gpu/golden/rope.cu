// program rope {
//   acc = gemm(h[M, K]:bf16, w[128*H, K]:bf16)
//   v = acc * per_row(r[M])
//   cos = tile(cos[S, 64], rows=position[M], repeat=H)
//   sin = tile(sin[S, 64], rows=position, repeat=H)
//   first, second = split_pairs(v, 128)
//   v_2 = first * cos
//   store(q:bf16, merge_pairs(v_2 - second * sin, second * cos + first * sin, 128))
// }
#include "device/arguments.cuh"
#include "device/epilogue/fragment_values.cuh"
#include "device/epilogue/direct_pairs.cuh"
#include "device/sm90/program_kernel.cuh"

namespace coda::device {

constexpr GemmConfig kConfig{.tile_m = 128, .tile_n = 128, .cluster_m = 1, .cluster_n = 2, .stages = 6, 
                             .schedule = Schedule::ping_pong, .layout = OperandLayout::tn, .element = Element::bf16};

// Descriptors.
enum : u32 {
  map_q_tile,
  map_h,
  map_w,
};
// Addresses.
enum : u32 {
  at_r,
  at_position,
  at_cos,
  at_sin,
  tile_counter,
};
// Sizes, strides (elements between rows), tile orders.
enum : u32 {
  rows_of_cos,
  stride_cos,
  stride_sin,
  rows_0,
  k_blocks_0_0,
  columns_0,
  band_0,
  tile_columns_0,
  tile_rows_0,
};
using Arguments = KernelArguments<3, 5, 9>;

struct Space0 {
  static constexpr EpilogueTraits kTraits{.parts = 2, .natural_half = 64, .loads = 0, .stores = 2};

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
    return &a.maps[map_w];
  }

  __device__ __forceinline__ static u32 k_blocks(const Arguments& a, u32 segment) {
    return a.numbers[k_blocks_0_0];
  }

  __device__ __forceinline__ static void store(const Arguments& a, u32 plane, u32 row, u32 column, SharedAddress source) {
    if (plane == 0) tma_store_once(&a.maps[map_q_tile], plane_column(64, 0, column), row, source);
    if (plane == 1) tma_store_once(&a.maps[map_q_tile], plane_column(64, 1, column), row, source);
  }

  struct Rows {
    float r[kConfig.blocks_m()][2];
    int position_index[kConfig.blocks_m()][2];
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
        rows.position_index[block][side] = is_inside ? reinterpret_cast<const int*>(a.pointers[at_position])[row] : 0;
      }
    }
  }

  struct SubTile {
    bool is_plain;
    DirectPairs<Element::f32> cos;
    DirectPairs<Element::f32> sin;
  };

  template <u32 kBlock, u32 kFragment>
  __device__ __forceinline__ static void load_ahead(const Arguments& a, const Rows& rows, SubTile& sub,
                                  const FragmentPosition& at) {
    if (sub.is_plain) {
      sub.cos.template load<kFragment>();
      sub.sin.template load<kFragment>();
    } else {
#pragma unroll
      for (u32 pair = 0; pair < kPairs; ++pair) {
        const u32 row = at.row + 8 * (pair % 2);
        const u32 column = at.column + 8 * (pair / 2);
        const u32 inside = row < at.rows ? inside_pair(column, at.columns) : 0;
        sub.cos.fragment[kFragment % 2][pair] = load_pair<Element::f32>(a.pointers[at_cos], static_cast<u64>(table_row(rows.position_index[kBlock][pair % 2], a.numbers[rows_of_cos])) * a.numbers[stride_cos] + (column) % 64, inside);
        sub.sin.fragment[kFragment % 2][pair] = load_pair<Element::f32>(a.pointers[at_sin], static_cast<u64>(table_row(rows.position_index[kBlock][pair % 2], a.numbers[rows_of_cos])) * a.numbers[stride_sin] + (column) % 64, inside);
      }
    }
  }

  template <u32 kBlock>
  __device__ __forceinline__ static void begin_sub_tile(const Arguments& a, const Rows& rows, SubTile& sub,
                                      const FragmentPosition& at) {
    sub.is_plain = is_whole(at) && has_aligned_pairs<Element::f32>(a.pointers[at_cos], a.numbers[stride_cos]);
    sub.cos.begin(a.pointers[at_cos], static_cast<u64>(table_row(rows.position_index[kBlock][0], a.numbers[rows_of_cos])) * a.numbers[stride_cos] + (at.column) % 64,
                  static_cast<u64>(table_row(rows.position_index[kBlock][1], a.numbers[rows_of_cos])) * a.numbers[stride_cos] + (at.column) % 64);
    sub.is_plain = sub.is_plain && has_aligned_pairs<Element::f32>(a.pointers[at_sin], a.numbers[stride_sin]);
    sub.sin.begin(a.pointers[at_sin], static_cast<u64>(table_row(rows.position_index[kBlock][0], a.numbers[rows_of_cos])) * a.numbers[stride_sin] + (at.column) % 64,
                  static_cast<u64>(table_row(rows.position_index[kBlock][1], a.numbers[rows_of_cos])) * a.numbers[stride_sin] + (at.column) % 64);
    load_ahead<kBlock, 0>(a, rows, sub, at);
  }

  template <u32 kBlock, u32 kFragment>
  __device__ __forceinline__ static void fragment(const Arguments& a, const Rows& rows, SubTile& sub,
                             const float (&accumulators)[2][8],
                             const u32 (&loaded)[1][4],
                             u32 (&stored)[2][4], const FragmentPosition& at) {
    if constexpr (kFragment + 1 < kFragments) {
      FragmentPosition next = at;
      next.column += kFragmentColumns;
      load_ahead<kBlock, kFragment + 1>(a, rows, sub, next);
    }
#pragma unroll
    for (u32 pair = 0; pair < kPairs; ++pair) {
      const auto acc_first = pair_of(accumulators[0], pair);
      const auto acc_second = pair_of(accumulators[1], pair);
      const auto v2_first = acc_first * rows.r[kBlock][pair % 2];
      const auto v2_second = acc_second * rows.r[kBlock][pair % 2];
      const auto v7 = v2_first * sub.cos.fragment[kFragment % 2][pair];
      const auto v8 = v2_second * sub.sin.fragment[kFragment % 2][pair];
      const auto v9 = v7 - v8;
      const auto v10 = v2_second * sub.cos.fragment[kFragment % 2][pair];
      const auto v11 = v2_first * sub.sin.fragment[kFragment % 2][pair];
      const auto v12 = v10 + v11;
      stored[0][pair] = pack<Element::bf16>(v9);
      stored[1][pair] = pack<Element::bf16>(v12);
    }
  }

  template <u32 kBlock>
  __device__ __forceinline__ static void end_sub_tile(const Arguments& a, const Rows& rows, SubTile& sub,
                                    const FragmentPosition& at, SharedAddress scratch) {}
};

extern "C" __global__ void __launch_bounds__(kThreads, 1)
__cluster_dims__(kConfig.cluster_size(), 1, 1)
rope_kernel(const __grid_constant__ Arguments a) {
  program_kernel<kConfig, Space0>(a, a.pointers[tile_counter]);
}

}  // namespace coda::device
