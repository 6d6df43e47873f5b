// SPDX-License-Identifier: Apache-2.0
// Written by hand, in the form that the emitter gives every kernel. Three tile spaces in one
// kernel: q and k with half-split RoPE of heads of 128, B loaded in natural order, cos and sin
// gathered by position and loaded a fragment ahead of their use; v narrow. All scaled by the norm's
// row scale.
//
//   r = per_row(r[M])
//   z = gemm(h[M, K]:bf16, wq[2*N, K]:bf16, nt)
//   cos = tile(cos[S, 64], rows=position[M], repeat=N/64)
//   sin = tile(sin[S, 64], rows=position, repeat=N/64)
//   first, second = split_pairs(z * r, 128)
//   store(q:bf16, merge_pairs(first * cos - second * sin, second * cos + first * sin, 128))
//   (k likewise)
//   store(v:bf16, gemm(h, wv[L, K]:bf16) * r)
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

using Arguments = KernelArguments<7, 5, 16>;

// Space 0: q, 1: k.
template <u32 kSpace>
struct Rotated {
  static constexpr EpilogueTraits kTraits{.parts = 2, .natural_half = 64, .stores = 2, .wide_stores = 1};

  __device__ __forceinline__ static u32 rows(const Arguments& a) { return a.numbers[0]; }
  __device__ __forceinline__ static u32 columns(const Arguments& a) {
    return a.numbers[1 + 5 * kSpace];
  }
  __device__ __forceinline__ static TileOrder order(const Arguments& a) {
    return {.rows = a.numbers[2 + 5 * kSpace],
            .columns = a.numbers[3 + 5 * kSpace],
            .band = a.numbers[4 + 5 * kSpace]};
  }

  __device__ __forceinline__ static const TensorMap* a(const Arguments& a, u32) {
    return &a.maps[0];
  }
  __device__ __forceinline__ static const TensorMap* b(const Arguments& a, u32, u32) {
    return &a.maps[1 + kSpace];
  }
  __device__ __forceinline__ static u32 k_blocks(const Arguments& a, u32) { return a.numbers[15]; }

  __device__ __forceinline__ static void store(const Arguments& a, u32 plane, u32 row, u32 column,
                                               SharedAddress source) {
    const TensorMap* map = &a.maps[4 + kSpace];
    if (plane == 0) tma_store_once(map, plane_column(64, 0, column), row, source);
    if (plane == 1) tma_store_once(map, plane_column(64, 1, column), row, source);
  }

  struct Rows {
    float r[kConfig.blocks_m()][2];
    u32 position[kConfig.blocks_m()][2];
  };
  __device__ __forceinline__ static void begin_tile(const Arguments& a, Rows& rows, const FragmentPosition& at) {
#pragma unroll
    for (u32 block = 0; block < kConfig.blocks_m(); ++block) {
#pragma unroll
      for (u32 side = 0; side < 2; ++side) {
        const u32 row = at.row + block * kWgmmaM + 8 * side;
        const bool is_inside = row < a.numbers[0];
        rows.r[block][side] = is_inside ? load_element<Element::f32>(a.pointers[0], row) : 0.0f;
        rows.position[block][side] =
            is_inside ? reinterpret_cast<const u32*>(a.pointers[1])[row] : 0;
      }
    }
  }

  struct SubTile {
    Elements<2> cos[kPairs];  // of the next fragment
    Elements<2> sin[kPairs];
  };
  template <u32 kBlock>
  __device__ __forceinline__ static void load_tables(const Arguments& a, const Rows& rows,
                                                     SubTile& sub, const FragmentPosition& at,
                                                     u32 first_column) {
#pragma unroll
    for (u32 pair = 0; pair < kPairs; ++pair) {
      const u32 column = first_column + 8 * (pair / 2);
      const u32 inside = at.row + 8 * (pair % 2) < at.rows && column < at.columns ? 2 : 0;
      const u64 index = static_cast<u64>(rows.position[kBlock][pair % 2]) * 64 + column % 64;
      sub.cos[pair] = load_pair<Element::f32, true>(a.pointers[2], index, inside);
      sub.sin[pair] = load_pair<Element::f32, true>(a.pointers[3], index, inside);
    }
  }
  template <u32 kBlock>
  __device__ __forceinline__ static void begin_sub_tile(const Arguments& a, const Rows& rows,
                                                        SubTile& sub, const FragmentPosition& at) {
    load_tables<kBlock>(a, rows, sub, at, at.column);
  }

  template <u32 kBlock, u32 kFragment>
  __device__ __forceinline__ static void fragment(const Arguments& a, const Rows& rows, SubTile& sub,
                                               const float (&acc)[2][8], const u32 (&)[1][4],
                                               u32 (&stored)[2][4], const FragmentPosition& at) {
    const SubTile now = sub;
    if constexpr (kFragment + 1 < kFragments) {
      load_tables<kBlock>(a, rows, sub, at, at.column + kFragmentColumns);
    }
#pragma unroll
    for (u32 pair = 0; pair < kPairs; ++pair) {
      const float r = rows.r[kBlock][pair % 2];
      const auto first = pair_of(acc[0], pair) * r;
      const auto second = pair_of(acc[1], pair) * r;
      stored[0][pair] = pack<Element::bf16>(first * now.cos[pair] - second * now.sin[pair]);
      stored[1][pair] = pack<Element::bf16>(second * now.cos[pair] + first * now.sin[pair]);
    }
  }
  template <u32 kBlock>
  __device__ __forceinline__ static void end_sub_tile(const Arguments&, const Rows&, SubTile&,
                                                      const FragmentPosition&, SharedAddress) {}
};

struct Space2 {
  static constexpr EpilogueTraits kTraits{};

  __device__ __forceinline__ static u32 rows(const Arguments& a) { return a.numbers[0]; }
  __device__ __forceinline__ static u32 columns(const Arguments& a) { return a.numbers[11]; }
  __device__ __forceinline__ static TileOrder order(const Arguments& a) {
    return {.rows = a.numbers[12], .columns = a.numbers[13], .band = a.numbers[14]};
  }

  __device__ __forceinline__ static const TensorMap* a(const Arguments& a, u32) {
    return &a.maps[0];
  }
  __device__ __forceinline__ static const TensorMap* b(const Arguments& a, u32, u32) {
    return &a.maps[3];
  }
  __device__ __forceinline__ static u32 k_blocks(const Arguments& a, u32) { return a.numbers[15]; }

  __device__ __forceinline__ static void store(const Arguments& a, u32, u32 row, u32 column,
                                               SharedAddress source) {
    tma_store_once(&a.maps[6], column, row, source);
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
                                               const float (&acc)[1][8], const u32 (&)[1][4],
                                               u32 (&stored)[1][4], const FragmentPosition&) {
#pragma unroll
    for (u32 pair = 0; pair < kPairs; ++pair) {
      stored[0][pair] = pack<Element::bf16>(pair_of(acc[0], pair) * rows.r[kBlock][pair % 2]);
    }
  }
  template <u32 kBlock>
  __device__ __forceinline__ static void end_sub_tile(const Arguments&, const Rows&, SubTile&,
                                                      const FragmentPosition&, SharedAddress) {}
};

extern "C" __global__ void __launch_bounds__(kThreads, 1)
    __cluster_dims__(kConfig.cluster_size(), 1, 1)
        qkv_rope(const __grid_constant__ Arguments arguments) {
  program_kernel<kConfig, Rotated<0>, Rotated<1>, Space2>(arguments, arguments.pointers[4]);
}

}  // namespace coda::device
