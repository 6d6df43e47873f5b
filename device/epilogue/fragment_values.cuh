// SPDX-License-Identifier: Apache-2.0
// The data of a fragment in an epilogue: pairs of its elements, and per-column vectors. A thread's
// fragment is four pairs of neighbouring columns: pair q is in row q % 2 of its two rows (8 apart),
// in the left two (q / 2 = 0) or right two (8 further) of its columns.
// Invariant: every register index is a compile-time constant.
#pragma once

#include "device/epilogue/sub_tile_adds.cuh"
#include "device/epilogue/sub_tile_rows.cuh"
#include "device/layout/space.cuh"
#include "device/values/elements.cuh"

namespace coda::device {

__device__ __forceinline__ Elements<2> pair_of(const float (&fragment)[kFragmentElements],
                                               u32 pair) {
  return {{fragment[2 * pair], fragment[2 * pair + 1]}};
}

// Makes a pair wait for other pairs: its bits, or its position, depend on the bits of the other
// pairs, `turn`. The result does not change, because `turn` is masked with the highest bit of the
// number of rows. That bit is zero, as there are fewer than 2^31 rows, but the assembler does not
// know this. src/gpu/codegen/pair_turns.h decides where pairs wait.
__device__ __forceinline__ u32 bits_of(u32 bits) { return bits; }
__device__ __forceinline__ u32 bits_of(float x) { return __float_as_uint(x); }
__device__ __forceinline__ u32 bits_of(const Elements<2>& x) {
  return bits_of(x.value[0]) | bits_of(x.value[1]);
}
__device__ __forceinline__ u32 after_turn(u32 bits, u32 turn, const FragmentPosition& at) {
  return bits | (turn & (at.rows >> 31));
}
__device__ __forceinline__ Elements<2> after_turn(const Elements<2>& x, u32 turn,
                                                  const FragmentPosition& at) {
  return {{__uint_as_float(after_turn(bits_of(x.value[0]), turn, at)),
           __uint_as_float(after_turn(bits_of(x.value[1]), turn, at))}};
}
__device__ __forceinline__ FragmentPosition after_turn(FragmentPosition at, u32 turn) {
  at.row = after_turn(at.row, turn, at);
  at.column = after_turn(at.column, turn, at);
  return at;
}

// A thread's 16 values of a per-column vector in one sub-tile, loaded ahead and kept in their
// storage type.
template <Element kStored>
struct ColumnValues {
  static constexpr bool kIsPacked = is_16_bits(kStored);
  u32 packed[kIsPacked ? kFragments : 1][2];
  Elements<2> wide[kIsPacked ? 1 : kFragments][2];

  // `at` is the sub-tile's first fragment. `place(column)` is the index of a base column in the
  // vector; an even column and the next must be adjacent. The usual case uses unconditional loads
  // at constant distances: a sub-tile entirely inside, with adjacent columns and aligned pairs.
  template <class Place>
  __device__ __forceinline__ void load(u64 vector, const FragmentPosition& at, Place place) {
    constexpr u32 kBytes = kIsPacked ? 2 : 4;
    const bool whole = (at.partial_column() + 1) * kSubTileColumns <= at.columns;
    const u64 first = vector + place(at.column) * static_cast<u64>(kBytes);
    if (whole && place(at.column + kSpan) - place(at.column) == kSpan &&
        first % (2 * kBytes) == 0) {
      // For fp32 vectors, which take more registers, this spilled next to other direct loads.
      if constexpr (kIsPacked) {
        load_pairs<true>(first, at, [&](u32 column) { return column - at.column; });
      } else {
        load_pairs<true>(vector, at, place);
      }
    } else {
      load_pairs<false>(vector, at, place);
    }
  }
  __device__ __forceinline__ auto at(u32 fragment, u32 pair) const {
    if constexpr (kIsPacked) {
      return unpack<kStored>(packed[fragment][pair / 2]);
    } else {
      return wide[fragment][pair / 2];
    }
  }

 private:
  static constexpr u32 kSpan = (kFragments - 1) * kFragmentColumns + 8;  // span of a thread's pairs

  template <bool kWhole, class Place>
  __device__ __forceinline__ void load_pairs(u64 vector, const FragmentPosition& at, Place place) {
#pragma unroll
    for (u32 fragment = 0; fragment < kFragments; ++fragment) {
#pragma unroll
      for (u32 side = 0; side < 2; ++side) {
        const u32 column = at.column + fragment * kFragmentColumns + 8 * side;
        const u32 inside = kWhole ? 2 : inside_pair(column, at.columns);
        if constexpr (kIsPacked) {
          packed[fragment][side] = load_packed_pair<kWhole>(vector, place(column), inside);
        } else {
          wide[fragment][side] = load_pair<kStored, kWhole>(vector, place(column), inside);
        }
      }
    }
  }
};

// Two elements that need not be adjacent, as one value; `valid` as in load_pair.
template <Element kStored>
__device__ __forceinline__ Elements<2> load_two(u64 tensor, u64 first, u64 second, u32 valid) {
  return {{valid >= 1 ? load_element<kStored>(tensor, first) : 0.0f,
           valid >= 2 ? load_element<kStored>(tensor, second) : 0.0f}};
}
template <Element kStored>
__device__ __forceinline__ void store_two(u64 tensor, u64 first, u64 second, u32 valid,
                                          const Elements<2>& x) {
  if (valid >= 1) store_element<kStored>(tensor, first, x.value[0]);
  if (valid >= 2) store_element<kStored>(tensor, second, x.value[1]);
}

}  // namespace coda::device
