// SPDX-License-Identifier: Apache-2.0
// A column partial of 64 rows: each warp reduces its 8 rows from top to bottom; then one thread per
// column merges the results of the eight warps in order.
#pragma once

#include "device/tiles/vector_access.cuh"
#include "device/values/reductions.cuh"

namespace coda::device {

// A thread's columns.
template <Reduction kKind>
struct ReducedColumns {
  Reduced<kKind> column[kThreadColumns];
};

// Adds one row, of which `valid` columns exist (0: the row does not exist).
template <bool kVector, Reduction kKind>
__device__ __forceinline__ void add_row(ReducedColumns<kKind>& to,
                                        const Elements<kThreadColumns>& x, u32 valid) {
  if (valid == 0) return;
#pragma unroll
  for (u32 i = 0; i < kThreadColumns; ++i) {
    if (kVector || i < valid) add(to.column[i], x.value[i]);
  }
}

// Floats of shared memory for the largest reduction.
inline constexpr u32 kColumnScratch = fields_of(Reduction::mean_m2) * kTileWarps * kBlockColumns;

// Called by all threads of a block. `natural(j)` is the column of base column j in the partial,
// whose rows are `pitch` elements apart; `span` of `spans` is the index of the block's 64 rows.
template <Reduction kKind, class Natural>
__device__ __forceinline__ void store_column_partial(float* scratch,
                                                     const ReducedColumns<kKind>& reduced,
                                                     u64 tensor, u32 pitch, u32 span, u32 spans,
                                                     u32 columns, const TilePosition& at,
                                                     const Natural& natural) {
  const u32 thread = thread_index();
  const auto place = [](u32 field, u32 warp, u32 i, u32 lane) {
    return ((field * kTileWarps + warp) * kThreadColumns + i) * 32 + lane;
  };
#pragma unroll
  for (u32 field = 0; field < fields_of(kKind); ++field) {
#pragma unroll
    for (u32 i = 0; i < kThreadColumns; ++i) {
      scratch[place(field, thread / 32, i, thread % 32)] = reduced.column[i].field[field];
    }
  }
  synchronize_block();
  const u32 column = at.column / kBlockColumns * kBlockColumns + thread;
  Reduced<kKind> total;
  for (u32 warp = 0; warp < kTileWarps; ++warp) {
    Reduced<kKind> part;
#pragma unroll
    for (u32 field = 0; field < fields_of(kKind); ++field) {
      part.field[field] =
          scratch[place(field, warp, thread % kThreadColumns, thread / kThreadColumns)];
    }
    total = merge(total, part);
  }
  synchronize_block();  // the next reduction writes the same memory
  if (column >= columns) return;
#pragma unroll
  for (u32 i = 0; i < lanes_of(kKind); ++i) {
    const u64 line = static_cast<u64>(i) * spans + span;
    store_element<Element::f32>(tensor, line * pitch + natural(column), total.lane(i));
  }
}

}  // namespace coda::device
