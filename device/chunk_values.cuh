// SPDX-License-Identifier: Apache-2.0
// What an epilogue does with a chunk besides arithmetic: pairs of its elements, per-column vectors,
// row partials and selected columns. A thread's chunk is four pairs of neighbouring columns: pair q
// is in row q % 2 of its two rows (8 apart), and of its columns the left (q / 2 = 0) or the right
// two (8 further).
// Invariant: a reduction's order depends on the sub-tile alone, never on the tile.
#pragma once

#include "device/elements.cuh"
#include "device/reductions.cuh"
#include "device/space.cuh"

namespace coda::device {

inline constexpr u32 kPairs = kChunkElements / 2;

__device__ __forceinline__ Elements<2> pair_of(const float (&chunk)[kChunkElements], u32 pair) {
  return {{chunk[2 * pair], chunk[2 * pair + 1]}};
}

// The value as a later reader of a 16-bit tensor sees it.
template <Element kElement>
__device__ __forceinline__ float rounded(float x) {
  float low;
  float high;
  unpack<kElement>(pack<kElement>(x, x), low, high);
  return low;
}

// A thread's 16 values of a per-column vector in one sub-tile, loaded before they are needed and
// kept as they lie in memory.
template <Stored kStored>
struct ColumnValues {
  static constexpr bool kIsPacked = kStored == Stored::bf16 || kStored == Stored::f16;
  static constexpr Element kElement = kStored == Stored::f16 ? Element::fp16 : Element::bf16;
  u32 packed[kIsPacked ? kChunks : 1][2];
  Elements<2> wide[kIsPacked ? 1 : kChunks][2];

  // `at` is the sub-tile's first chunk; `place(column)` where a base column stands in the vector,
  // neighbours for an even column and the next. A sub-tile that is wholly inside and a vector whose
  // pairs are aligned, which is nearly all of them, take plain loads.
  template <class Place>
  __device__ __forceinline__ void load(u64 vector, const Position& at, Place place) {
    constexpr u32 kBytes = kIsPacked ? 2 : 4;
    const bool whole = (at.partial_column() + 1) * kSubTileColumns <= at.columns;
    if (whole && (vector + place(at.column) * kBytes) % (2 * kBytes) == 0) {
      load_pairs<true>(vector, at, place);
    } else {
      load_pairs<false>(vector, at, place);
    }
  }
  __device__ __forceinline__ Elements<2> at(u32 chunk, u32 pair) const {
    if constexpr (kIsPacked) {
      return unpack<kElement>(packed[chunk][pair / 2]);
    } else {
      return wide[chunk][pair / 2];
    }
  }

 private:
  template <bool kWhole, class Place>
  __device__ __forceinline__ void load_pairs(u64 vector, const Position& at, Place place) {
#pragma unroll
    for (u32 chunk = 0; chunk < kChunks; ++chunk) {
#pragma unroll
      for (u32 side = 0; side < 2; ++side) {
        const u32 column = at.column + chunk * kChunkColumns + 8 * side;
        const u32 inside = kWhole ? 2 : inside_pair(column, at.columns);
        if constexpr (kIsPacked) {
          packed[chunk][side] = load_packed_pair<kWhole>(vector, place(column), inside);
        } else {
          wide[chunk][side] = load_pair<kStored, kWhole>(vector, place(column), inside);
        }
      }
    }
  }
};

// Two elements that may be apart, as one value; `valid` as in load_pair.
template <Stored kStored>
__device__ __forceinline__ Elements<2> load_two(u64 tensor, u64 first, u64 second, u32 valid) {
  return {{valid >= 1 ? load_element<kStored>(tensor, first) : 0.0f,
           valid >= 2 ? load_element<kStored>(tensor, second) : 0.0f}};
}
template <Stored kStored>
__device__ __forceinline__ void store_two(u64 tensor, u64 first, u64 second, u32 valid,
                                          const Elements<2>& x) {
  if (valid >= 1) store_element<kStored>(tensor, first, x.value[0]);
  if (valid >= 2) store_element<kStored>(tensor, second, x.value[1]);
}

// One pair more of a row: sums and maxima, which need no look at the whole chunk.
template <Reduction kKind>
__device__ __forceinline__ void add_to_row(Reduced<kKind>& to, const Elements<2>& x, u32 valid) {
  static_assert(kKind == Reduction::sum || kKind == Reduction::max);
  if constexpr (kKind == Reduction::sum) {
    to.field[0] += valid >= 1 ? x.value[0] : 0.0f;
    to.field[0] += valid >= 2 ? x.value[1] : 0.0f;
  } else {
    to.field[0] = maximum(to.field[0], valid >= 1 ? x.value[0] : -kInfinity);
    to.field[0] = maximum(to.field[0], valid >= 2 ? x.value[1] : -kInfinity);
  }
}

// One chunk more of both rows: the running maximum moves once a chunk, so that most values cost one
// exponential; deviations are taken from the chunk's own mean.
template <Reduction kKind>
__device__ __forceinline__ void add_chunk(Reduced<kKind> (&rows)[2], const Elements<2> (&x)[kPairs],
                                          const Position& at, u32 columns) {
  // A literal ~0u means that none is outside.
  const bool all = columns == ~0u;
  const u32 valid[2] = {all ? 2 : inside_pair(at.column, columns),
                        all ? 2 : inside_pair(at.column + 8, columns)};
#pragma unroll
  for (u32 row = 0; row < 2; ++row) {
    const auto fold = [&](float start, auto function) {
#pragma unroll
      for (u32 i = 0; i < 4; ++i) {
        const float next = function(start, x[i / 2 * 2 + row].value[i % 2]);
        start = i % 2 < valid[i / 2] ? next : start;
      }
      return start;
    };
    Reduced<kKind> chunk;
    if constexpr (kKind == Reduction::log_sum_exp) {
      const float largest =
          fold(rows[row].lane(0), [](float most, float value) { return maximum(most, value); });
      // Where all are -infinity nothing is subtracted, and their exponentials are 0.
      const float base = largest == -kInfinity ? 0.0f : largest;
      const float before = rows[row].lane(1) * exponential(rows[row].lane(0) - base);
      rows[row].field[1] =
          fold(before, [&](float sum, float value) { return sum + exponential(value - base); });
      rows[row].field[0] = largest;
    } else {
      static_assert(kKind == Reduction::centred);
      const u32 count = valid[0] + valid[1];
      const float total = fold(0.0f, [](float sum, float value) { return sum + value; });
      const float mean = count == 0 ? 0.0f : total * reciprocal(static_cast<float>(count));
      chunk.field[0] = static_cast<float>(count);
      chunk.field[1] = mean;
      chunk.field[2] =
          fold(0.0f, [&](float sum, float value) { return fmaf(value - mean, value - mean, sum); });
      rows[row] = merge(rows[row], chunk);
    }
  }
}

// The four lanes of two rows join: first each pair of lanes exchanges, so that the even lane goes
// on with one row and the odd lane with the other; then both pairs. One lane a row writes the
// partial of the sub-tile's 64 columns. `at` is the sub-tile's first chunk; `stride`: elements
// between rows of the partial.
template <Reduction kKind>
__device__ __forceinline__ void store_row_partial(u64 partial, u32 stride,
                                                  const Reduced<kKind> (&rows)[2],
                                                  const Position& at) {
  const u32 side = at.thread % 2;
  Reduced<kKind> lower;
  Reduced<kKind> upper;
#pragma unroll
  for (u32 i = 0; i < fields_of(kKind); ++i) {
    const float kept = side == 0 ? rows[0].field[i] : rows[1].field[i];
    const float received = exchange(side == 0 ? rows[1].field[i] : rows[0].field[i], 1);
    lower.field[i] = side == 0 ? kept : received;
    upper.field[i] = side == 0 ? received : kept;
  }
  const Reduced<kKind> all = merge_lanes(merge(lower, upper), 2);
  const u32 row = at.row + 8 * side;
  // The lane's own columns may lie outside where the partial's first ones do not.
  const bool is_outside = at.partial_column() * kSubTileColumns >= at.columns;
  if (at.thread % 4 >= 2 || row >= at.rows || is_outside) return;
#pragma unroll
  for (u32 lane = 0; lane < lanes_of(kKind); ++lane) {
    const u64 line = static_cast<u64>(lane) * at.rows + row;
    store_element<Stored::f32>(partial, line * stride + at.partial_column(), all.lane(lane));
  }
}

// Stores the element of a pair that stands at column `index` of the row; the thread with column 0
// stores 0 for an index outside [0, columns). `place` is where the row's result goes. Nearly no
// pair has it, so the others leave after one comparison.
template <Stored kStored>
__device__ __forceinline__ void store_selected(u64 tensor, u64 place, int index, int columns,
                                               u32 first, u32 second, u32 valid,
                                               const Elements<2>& x) {
  const bool outside = static_cast<u32>(index) >= static_cast<u32>(columns);
  const u32 wanted = outside ? 0 : static_cast<u32>(index);
  const bool is_first = wanted == first;
  // A vote, because the assembler would predicate the rest, for every pair.
  if (!__any_sync(~0u, is_first || wanted == second)) return;
  if (!is_first && (wanted != second || outside)) return;
  if (valid < (is_first ? 1 : 2)) return;
  const float value = is_first ? x.value[0] : x.value[1];
  store_element<kStored>(tensor, place, outside ? 0.0f : value);
}

}  // namespace coda::device
