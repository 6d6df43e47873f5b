// SPDX-License-Identifier: Apache-2.0
// Row effects at the end of a sub-tile: partial reductions of its 64 columns, and selected columns.
// A thread has 16 columns of two rows, the four lanes of a quad have all 64. Effects that read
// values twice (a log-sum-exp: maximum, then exponentials) or search for one run when all values
// are known. The values then occupy the registers of their accumulators.
// Invariant: the order of a reduction depends only on the sub-tile, never on the tile.
#pragma once

#include "device/layout/space.cuh"
#include "device/values/elements.cuh"
#include "device/values/reductions.cuh"

namespace coda::device {

inline constexpr u32 kPairs = kFragmentElements / 2;

// A thread's values of one plane: pair q of a fragment is in row q % 2 of its two rows (8 apart),
// in the left two (q / 2 = 0) or right two (8 further) of its columns.
template <class Pair>
using SubTileOf = Pair[kFragments][kPairs];
using SubTileValues = SubTileOf<Elements<2>>;

// Adds one pair to the fold of a row.
template <Reduction kKind, class Pair>
__device__ __forceinline__ void add_to_row(Reduced<kKind>& to, const Pair& x, u32 valid) {
  float& folded = to.field[0];
#pragma unroll
  for (u32 i = 0; i < 2; ++i) {
    const float next = kKind == Reduction::sum ? plus_element(folded, x, i)
                                               : fold<kKind>(folded, of_one<kKind>(x.value[i]));
    folded = valid > i ? next : folded;
  }
}

// The sum over a quad. Its lanes get the same bits, because addition is commutative.
__device__ __forceinline__ float quad_sum(float x) {
  x += exchange(x, 1);
  return x + exchange(x, 2);
}
__device__ __forceinline__ float quad_maximum(float x) {
  x = maximum(x, exchange(x, 1));
  return maximum(x, exchange(x, 2));
}

// Each lane keeps one of two rows' values: even lanes the first row.
__device__ __forceinline__ float own_row(const float (&rows)[2], u32 thread) {
  return thread % 2 == 0 ? rows[0] : rows[1];
}
__device__ __forceinline__ float other_row(const float (&rows)[2], u32 thread) {
  return thread % 2 == 0 ? rows[1] : rows[0];
}

// The fold over a quad for the lane's own row.
template <Reduction kKind>
__device__ __forceinline__ float quad_of_own_row(const float (&rows)[2], u32 thread) {
  const float pair = fold<kKind>(own_row(rows, thread), exchange(other_row(rows, thread), 1));
  return fold<kKind>(pair, exchange(pair, 2));
}

// One lane per row writes the row's partial for the sub-tile's columns. `at` is the sub-tile's
// first fragment; `stride`: elements between rows of the partial.
template <u32 kLanes>
__device__ __forceinline__ void write_row_partial(u64 partial, u32 stride,
                                                  const float (&own)[kLanes],
                                                  const FragmentPosition& at) {
  const u32 row = at.row + 8 * (at.thread % 2);
  const u64 lane_elements = wide_product(at.rows, stride);  // once for all lanes
  const u64 first = static_cast<u64>(row) * stride + at.partial_column();
  // A lane's own columns may be outside although the partial's first column is inside.
  const bool is_outside = at.partial_column() * kSubTileColumns >= at.columns;
  if (at.thread % 4 >= 2 || row >= at.rows || is_outside) return;
#pragma unroll
  for (u32 lane = 0; lane < kLanes; ++lane) {
    store_element<Element::f32>(partial, first + lane * lane_elements, own[lane]);
  }
}

// For folds that were accumulated pair by pair.
template <Reduction kKind>
__device__ __forceinline__ void store_row_partial(u64 partial, u32 stride,
                                                  const Reduced<kKind> (&rows)[2],
                                                  const FragmentPosition& at) {
  const float both[2] = {rows[0].field[0], rows[1].field[0]};
  const float own[1] = {quad_of_own_row<kKind>(both, at.thread)};
  write_row_partial(partial, stride, own, at);
}

// Folds a thread's columns of a row, from `start`, with function(value so far, element), over the
// columns inside. A literal ~0u for `columns` means that all are inside.
template <u32 kPlanes, class Pair, class Sum, class Function>
__device__ __forceinline__ Sum fold_row(const SubTileOf<Pair> (&x)[kPlanes], u32 row,
                                        const FragmentPosition& at, u32 columns, Sum start,
                                        Function function) {
#pragma unroll
  for (u32 plane = 0; plane < kPlanes; ++plane) {
#pragma unroll
    for (u32 fragment = 0; fragment < kFragments; ++fragment) {
#pragma unroll
      for (u32 i = 0; i < 4; ++i) {
        const u32 column = at.column + fragment * kFragmentColumns + i / 2 * 8 + i % 2;
        const Sum next = function(start, x[plane][fragment][i / 2 * 2 + row].value[i % 2]);
        start = columns == ~0u || column < columns ? next : start;
      }
    }
  }
  return start;
}

// The maximum of each of a quad's two rows, over the columns inside.
template <u32 kPlanes, class Pair>
__device__ __forceinline__ void find_largest(float (&largest)[2],
                                             const SubTileOf<Pair> (&x)[kPlanes],
                                             const FragmentPosition& at, u32 columns) {
#pragma unroll
  for (u32 row = 0; row < 2; ++row) {
    largest[row] = quad_maximum(
        fold_row(x, row, at, columns, -kInfinity, [](float a, float b) { return maximum(a, b); }));
  }
}

// The same for 16-bit values: two at a time, then both rows at a time.
template <u32 kPlanes, Element kElement>
__device__ __forceinline__ void find_largest(float (&largest)[2],
                                             const SubTileOf<StoredPair<kElement>> (&x)[kPlanes],
                                             const FragmentPosition& at, u32 columns) {
  if (columns != ~0u) {
    find_largest<kPlanes, StoredPair<kElement>>(largest, x, at, columns);
    return;
  }
  u32 rows[2];
#pragma unroll
  for (u32 row = 0; row < 2; ++row) {
    rows[row] = x[0][0][row].bits;
#pragma unroll
    for (u32 i = 1; i < kPlanes * kFragments * kPairs / 2; ++i) {
      const u32 fragment = i * 2 / kPairs;
      rows[row] = maximum_packed<kElement>(
          rows[row], x[fragment / kFragments][fragment % kFragments][i * 2 % kPairs + row].bits);
    }
  }
  u32 both = maximum_packed<kElement>(__byte_perm(rows[0], rows[1], 0x5410),
                                      __byte_perm(rows[0], rows[1], 0x7632));
#pragma unroll
  for (u32 mask = 1; mask <= 2; mask *= 2) {
    const u32 other = __float_as_uint(exchange(__uint_as_float(both), mask));
    both = maximum_packed<kElement>(both, other);
  }
  unpack<kElement>(both, largest[0], largest[1]);
}

// The partial of a reduction that needs all values at once, over one or two planes.
// log_sum_exp: the row's maximum, and the sum of exp(x - maximum). Each value costs a maximum, a
// multiply-add, an exponential and an addition.
// entropy: also the sum of (x - maximum) exp(x - maximum): a multiply-add and a maximum more.
// mean_m2: the mean, and the sum of squared differences from it.
template <Reduction kKind, u32 kPlanes, class Pair>
__device__ __forceinline__ void store_row_reduction(u64 partial, u32 stride,
                                                    const SubTileOf<Pair> (&x)[kPlanes],
                                                    const FragmentPosition& at, u32 columns) {
  static_assert(lanes_of(kKind) > 1);
  float about[2];
  float sums[2];
  [[maybe_unused]] float shifted[2];
  if constexpr (has_exponentials(kKind)) find_largest(about, x, at, columns);
#pragma unroll
  for (u32 row = 0; row < 2; ++row) {
    if constexpr (kKind == Reduction::log_sum_exp) {
      sums[row] = fold_row(x, row, at, columns, 0.0f, SumBelow(about[row]));
    } else if constexpr (kKind == Reduction::entropy) {
      const EntropySums both =
          fold_row(x, row, at, columns, EntropySums(), EntropyBelow(about[row]));
      sums[row] = both.sum;
      shifted[row] = both.shifted;
    } else {
      const float total =
          fold_row(x, row, at, columns, 0.0f, [](float sum, float value) { return sum + value; });
      const u32 first = at.partial_column() * kSubTileColumns;
      const u32 inside = first < at.columns ? smaller(kSubTileColumns, at.columns - first) : 1;
      about[row] = quad_sum(total) / static_cast<float>(kPlanes * inside);
      sums[row] = fold_row(x, row, at, columns, 0.0f, [&](float sum, float value) {
        return fmaf(value - about[row], value - about[row], sum);
      });
    }
  }
  float own[lanes_of(kKind)] = {own_row(about, at.thread),
                                quad_of_own_row<Reduction::sum>(sums, at.thread)};
  if constexpr (kKind == Reduction::log_sum_exp) own[1] = total_below(own[0], own[1]);
  if constexpr (kKind == Reduction::entropy) {
    const EntropySums totals =
        totals_below(own[0], {own[1], quad_of_own_row<Reduction::sum>(shifted, at.thread)});
    own[1] = totals.sum;
    own[2] = totals.shifted;
  }
  write_row_partial(partial, stride, own, at);
}

// The position of a tensor's column in the planes of its values.
struct PlaneColumn {
  u32 plane = 0;
  u32 column = 0;  // base column
};

// Stores, for each row, the element at the row's index. If the index is outside [0, columns), the
// thread with column 0 stores 0. `find` maps a column of the tensor to its position. Most sub-tiles
// do not contain the index and return after one comparison per row. `at` is the sub-tile's first
// fragment; `stride`: elements between the results of two rows.
template <Element kStored, u32 kPlanes, class Pair, class Find>
__device__ __forceinline__ void store_selected(u64 tensor, u32 stride, const int (&indices)[2],
                                               int columns, const SubTileOf<Pair> (&x)[kPlanes],
                                               const FragmentPosition& at, Find find) {
  // A thread has two of each eight columns from its first column on.
  const auto is_of_thread = [](u32 offset) { return offset < kSubTileColumns && offset % 8 < 2; };
  bool is_likely = at.partial_column() == 0;
#pragma unroll
  for (u32 side = 0; side < 2; ++side) {
    is_likely |= is_of_thread(find(static_cast<u32>(indices[side])).column - at.column);
  }
  if (!__any_sync(~0u, is_likely)) return;
#pragma unroll
  for (u32 side = 0; side < 2; ++side) {
    const bool outside = static_cast<u32>(indices[side]) >= static_cast<u32>(columns);
    const PlaneColumn wanted = find(outside ? 0 : static_cast<u32>(indices[side]));
    const u32 offset = wanted.column - at.column;
    const bool is_own = is_of_thread(offset);
    // A vote forces a branch; otherwise the assembler would predicate the rest.
    if (!__any_sync(~0u, is_own)) continue;
    float value = 0.0f;
#pragma unroll
    for (u32 plane = 0; plane < kPlanes; ++plane) {
#pragma unroll
      for (u32 i = 0; i < 4 * kFragments; ++i) {
        const u32 place = i / 2 * 8 + i % 2;
        const bool is_here = wanted.plane == plane && offset == place;
        value = is_here ? x[plane][i / 4][i / 2 % 2 * 2 + side].value[i % 2] : value;
      }
    }
    const u32 row = at.row + 8 * side;
    if (!is_own || row >= at.rows) continue;
    store_element<kStored>(tensor, static_cast<u64>(row) * stride, outside ? 0.0f : value);
  }
}

}  // namespace coda::device
