// program rotation_backward {
//   cos = tile(cos[16, 32], rows=position[M], repeat=3)
//   sin = tile(sin[16, 32], rows=position, repeat=3)
//   dq = tile(dq[M, 192]:bf16)
//   first, second = split_pairs(dq, 64)
//   v = cos * first
//   store(dq, merge_pairs(v + sin * second, cos * second - sin * first, 64))
//   row_partial(p, sum(dq * tile(q[M, 192]:bf16)))
// }
#include "device/kernels/tile_kernel.cuh"

namespace coda::device {
namespace {

// Addresses.
enum : u32 {
  at_position,
  at_cos,
  at_sin,
  at_dq,
  at_q,
  at_p,
};
// Sizes, strides (elements between rows), tile orders.
enum : u32 {
  rows_0,
  columns_0,
  spans_0,
  spans_0_multiplier,
  spans_0_shift,
  row_bytes_of_position,
  rows_of_cos,
  stride_cos,
  columns_of_cos,
  columns_of_cos_multiplier,
  columns_of_cos_shift,
  rows_of_sin,
  stride_sin,
  columns_of_sin,
  columns_of_sin_multiplier,
  columns_of_sin_shift,
  stride_dq,
  half_0_0,
  half_0_0_multiplier,
  half_0_0_shift,
  stride_q,
  stride_p,
};
using Arguments = KernelArguments<0, 6, 22>;

// Tile space 0, [M, 96].
struct Space0 {
  static constexpr u32 kThreadRows = 1;

  __device__ static bool is_vector(const Arguments& a, u32 block) {
    const u32 columns = a.numbers[columns_0];
    return are_spans_whole(block, columns, a.numbers[spans_0]) &&
           (a.pointers[at_cos] |
            static_cast<u64>(a.numbers[stride_cos]) * 4 |
            a.numbers[columns_of_cos] * 2 |
            a.pointers[at_sin] |
            static_cast<u64>(a.numbers[stride_sin]) * 4 |
            a.numbers[columns_of_sin] * 2 |
            a.pointers[at_dq] |
            static_cast<u64>(a.numbers[stride_dq]) * 2 |
            a.numbers[half_0_0] * 2 |
            a.pointers[at_q] |
            static_cast<u64>(a.numbers[stride_q]) * 2) % 16 == 0;
  }

  template <bool kVector>
  __device__ __forceinline__ static void run(const Arguments& a, u32 block, [[maybe_unused]] float* scratch) {
    const u32 rows = a.numbers[rows_0];
    const u32 columns = a.numbers[columns_0];
    const auto by_spans_0 = column_divisor<kVector>({a.numbers[spans_0], a.numbers[spans_0_multiplier], a.numbers[spans_0_shift]});
    const auto by_columns_of_cos = column_divisor<kVector>({a.numbers[columns_of_cos], a.numbers[columns_of_cos_multiplier], a.numbers[columns_of_cos_shift]});
    const auto by_columns_of_sin = column_divisor<kVector>({a.numbers[columns_of_sin], a.numbers[columns_of_sin_multiplier], a.numbers[columns_of_sin_shift]});
    const auto by_half_0_0 = column_divisor<kVector>({a.numbers[half_0_0], a.numbers[half_0_0_multiplier], a.numbers[half_0_0_shift]});
    const TilePosition at = span_position(block, thread_index(), columns, by_spans_0, kThreadRows);
    const auto base = [&](u32 i) { return at.column + i; };
    const auto table0 = neighbours<kVector>([&](u32 i) { return base(i) % by_columns_of_cos; });
    const auto table1 = neighbours<kVector>([&](u32 i) { return base(i) % by_columns_of_sin; });
    const auto pair0_0 = neighbours<kVector>([&](u32 i) { return pair_column(base(i), by_half_0_0, 0); });
    const auto pair0_1 = neighbours<kVector>([&](u32 i) { return pair_column(base(i), by_half_0_0, 1); });
#pragma unroll 1
    for (u32 first = 0; first < kThreadRows; first += kThreadRows) {
      u32 valid[kThreadRows];
      u32 i1[kThreadRows];
      typename LoadedEight<kVector, Element::f32>::Type t0[kThreadRows];
      typename LoadedEight<kVector, Element::f32>::Type t1[kThreadRows];
      typename LoadedEight<kVector, Element::bf16>::Type t2_0[kThreadRows];
      typename LoadedEight<kVector, Element::bf16>::Type t2_1[kThreadRows];
      typename LoadedEight<kVector, Element::bf16>::Type t13_0[kThreadRows];
      typename LoadedEight<kVector, Element::bf16>::Type t13_1[kThreadRows];
      RowPartial<Reduction::sum> p15[kThreadRows];
#pragma unroll
      for (u32 r = 0; r < kThreadRows; ++r) {
        const u32 row = at.row + first + r;
        valid[r] = row < rows ? at.valid : 0;
        const u32 inside = smaller(row, rows - 1);
        i1[r] = index_of_row(a.pointers[at_position], inside, a.numbers[row_bytes_of_position]);  // position
      }
#pragma unroll
      for (u32 r = 0; r < kThreadRows; ++r) {
        const u32 row = at.row + first + r;
        t2_0[r] = load_eight<Element::bf16, Access::in_place, kVector>(a.pointers[at_dq], row_start(row, a.numbers[stride_dq]), valid[r], pair0_0);  // dq
        t2_1[r] = load_eight<Element::bf16, Access::in_place, kVector>(a.pointers[at_dq], row_start(row, a.numbers[stride_dq]), valid[r], pair0_1);  // dq
        t13_0[r] = load_eight<Element::bf16, Access::streamed, kVector>(a.pointers[at_q], row_start(row, a.numbers[stride_q]), valid[r], pair0_0);  // q
        t13_1[r] = load_eight<Element::bf16, Access::streamed, kVector>(a.pointers[at_q], row_start(row, a.numbers[stride_q]), valid[r], pair0_1);  // q
        t0[r] = load_eight<Element::f32, Access::cached, kVector>(a.pointers[at_cos], row_start(table_row(i1[r], a.numbers[rows_of_cos]), a.numbers[stride_cos]), valid[r], table0);  // cos
        t1[r] = load_eight<Element::f32, Access::cached, kVector>(a.pointers[at_sin], row_start(table_row(i1[r], a.numbers[rows_of_sin]), a.numbers[stride_sin]), valid[r], table1);  // sin
      }
#pragma unroll
      for (u32 r = 0; r < kThreadRows; ++r) {
        const u32 row = at.row + first + r;
        const auto v0 = values(t0[r]);  // cos
        const auto v1 = values(t1[r]);  // sin
        const auto v2_0 = values(t2_0[r]);  // dq
        const auto v2_1 = values(t2_1[r]);  // dq
        const auto v5 = v0 * v2_0;
        const auto v6 = v1 * v2_1;
        const auto v7 = v5 + v6;
        const auto v8 = v0 * v2_1;
        const auto v9 = v1 * v2_0;
        const auto v10 = v8 - v9;
        store_eight<Element::bf16, kVector>(a.pointers[at_dq], row_start(row, a.numbers[stride_dq]), valid[r], pair0_0, v7);  // dq
        store_eight<Element::bf16, kVector>(a.pointers[at_dq], row_start(row, a.numbers[stride_dq]), valid[r], pair0_1, v10);  // dq
        const auto v13_0 = values(t13_0[r]);  // q
        const auto v13_1 = values(t13_1[r]);  // q
        const auto v14_0 = v2_0 * v13_0;
        const auto v14_1 = v2_1 * v13_1;
        p15[r] = row_partial<Reduction::sum, kVector>(columns, at, valid[r], v14_0, v14_1);  // p
      }
      store_row_partials(a.pointers[at_p], a.numbers[stride_p], rows, at.row + first, columns, at, p15);  // p
    }
  }
};

}  // namespace

extern "C" __global__ void __launch_bounds__(kTileThreads, 1) rotation_backward_tiles(const __grid_constant__ Arguments a) {
  float* const scratch = nullptr;
  launch_dependents();
  wait_for_predecessor();
  run_space<Space0>(a, block_index(), scratch);
}

}  // namespace coda::device
