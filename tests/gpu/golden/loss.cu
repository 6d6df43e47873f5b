// program loss {
//   p = combine_rows(log_sum_exp(p[M, V]), max)
//   p_2 = combine_rows(log_sum_exp(p), log_sum)
//   rows = select(per_row(counts[M]), p + p_2 - per_row(target[M]), 0)
//   store(rows, rows)
//   store(mean, reduce_vector(rows) * scalar(factor))
// }
#include "device/kernels/finalizer.cuh"

namespace coda::device::precise {
namespace {

// Addresses.
enum : u32 {
  at_counts,
  at_target,
  at_p,
  at_rows,
};
// Sizes, strides (elements between rows), tile orders.
enum : u32 {
  blocks_0,
  lines_0,
  lanes_0,
  stride_counts,
  stride_target,
  stride_p,
  partials_0,
  reduced_0,
  stride_rows,
};
using Arguments = KernelArguments<0, 4, 9>;

}  // namespace

extern "C" __global__ void __launch_bounds__(kFinalizerThreads, 1) loss_vectors(const __grid_constant__ Arguments a) {
  __shared__ float scratch[kFinalizerScratch];
  launch_dependents();
  wait_for_predecessor();
  {  // M lines
    const u32 lines = a.numbers[lines_0];
    const u32 members = a.numbers[lanes_0];
    const u32 own = block_threads() / members;
    for (u32 first = block_index() * own; first < lines; first += a.numbers[blocks_0] * own) {
      const LinePlace at = place_in_lanes(thread_index(), first, lines, members);
      const float v2 = at.is_first() ? load_element<Element::f32>(a.pointers[at_counts], row_start(at.line, a.numbers[stride_counts])) : 0.0f;  // counts
      const float v4 = at.is_first() ? load_element<Element::f32>(a.pointers[at_target], row_start(at.line, a.numbers[stride_target])) : 0.0f;  // target
      const auto p0_log_sum_exp = combine_in_lanes<Reduction::log_sum_exp, true>({.tensor = a.pointers[at_p], .pitch = a.numbers[stride_p], .lines = lines, .count = a.numbers[partials_0], .reduced = a.numbers[reduced_0]}, at);  // p
      const float v0 = p0_log_sum_exp.lane(0);
      const float v1 = logarithm(p0_log_sum_exp.lane(1));
      const float v3 = v0 + v1;
      const float v5 = v3 - v4;
      const float v7 = select(v2, v5, 0.0f);
      if (at.is_first()) {
        store_element<Element::f32>(a.pointers[at_rows], row_start(at.line, a.numbers[stride_rows]), v7);  // rows
      }
    }
  }
}

}  // namespace coda::device::precise
// program loss {
//   p = combine_rows(log_sum_exp(p[M, V]), max)
//   p_2 = combine_rows(log_sum_exp(p), log_sum)
//   rows = select(per_row(counts[M]), p + p_2 - per_row(target[M]), 0)
//   store(rows, rows)
//   store(mean, reduce_vector(rows) * scalar(factor))
// }
#include "device/kernels/finalizer.cuh"

namespace coda::device::precise {
namespace {

// Addresses.
enum : u32 {
  at_factor,
  at_rows,
  at_mean,
};
// Sizes, strides (elements between rows), tile orders.
enum : u32 {
  lines_0,
  stride_rows,
};
using Arguments = KernelArguments<0, 3, 2>;

}  // namespace

extern "C" __global__ void __launch_bounds__(kSingleThreads, 1) loss_vectors_sums(const __grid_constant__ Arguments a) {
  __shared__ float scratch[kFinalizerScratch];
  launch_dependents();
  wait_for_predecessor();
  const float v10 = load_element<Element::f32>(a.pointers[at_factor], 0);  // factor
  float sum9 = 0.0f;
  {  // M lines
    const u32 lines = a.numbers[lines_0];
    const u32 members = 1;
    const u32 own = block_threads() / members;
    for (u32 batch = 0; batch < lines; batch += kLineBatch * own) {
#pragma unroll
      for (u32 i = 0; i < kLineBatch; ++i) {
      const u32 first = batch + i * own;
      LinePlace at = place_in_lanes(thread_index(), first, lines, members);
      at.line = smaller(at.line, lines - 1);
      const float v7 = load_element<Element::f32>(a.pointers[at_rows], row_start(at.line, a.numbers[stride_rows]));  // rows
      if (at.is_first()) {
        sum9 += v7;
      }
    }
    }
  }
  const float v9 = block_sum(sum9, scratch);
  const float v11 = v9 * v10;
  synchronize_block();
  if (block_index() == 0 && thread_index() == 0) {
    store_element<Element::f32>(a.pointers[at_mean], 0, v11);  // mean
  }
}

}  // namespace coda::device::precise
