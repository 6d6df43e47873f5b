// SPDX-License-Identifier: Apache-2.0
// Copies the planes of an epilogue between global and shared memory. A plane has the 64 rows and 64
// columns of one tensor that belong to a sub-tile. If each thread loaded the pairs of its fragment
// directly, one access of a warp would touch only 16 bytes in each of eight rows, and the warp
// would wait for every fragment. So a warp copies whole rows of 128 bytes, and loads are
// asynchronous. A warp copies the 16 rows of its own fragments. So __syncwarp() is enough before
// the warp reads a plane and before it overwrites the plane.
#pragma once

#include "device/ptx/barrier.cuh"
#include "device/ptx/global_memory.cuh"
#include "device/sm80/operand_copy.cuh"

namespace coda::device::sm80 {

inline constexpr u32 kWarpRows = 16;  // of a plane

// The number of a thread in its group. The shuffle hides the number's origin, so that the compiler
// does not keep values that depend on it in registers during the mainloop.
__device__ __forceinline__ u32 thread_of_group() {
  return __shfl_sync(~0u, threadIdx.x % kWarpgroupSize, threadIdx.x % kWarpSize);
}

// The first of the rows of a plane that the warp of a thread copies.
constexpr u32 own_first_row(u32 thread) { return thread / kWarpSize * kWarpRows; }

// Calls move(place, address, count) for each piece (16 bytes) of this lane: its place in the plane,
// the address of its first element, and the number of its elements that are inside the tensor.
// kBytes: of an element. kUnrolled: how many pieces are handled at once. `row`, `column`: where the
// plane begins in the tensor.
template <u32 kBytes, u32 kUnrolled, class Move>
__device__ __forceinline__ void visit_own_pieces(SharedAddress plane, const StoredOperand& tensor,
                                                 u32 row, u32 column, Move move) {
  constexpr u32 kRowBytes = kSubTileColumns * kBytes;
  constexpr u32 kPieces = kRowBytes / kPieceBytes;  // of a row
  constexpr u32 kElements = kPieceBytes / kBytes;   // of a piece
  constexpr u32 kRows = kWarpSize / kPieces;        // of the pieces that a warp has at a time
  const u32 thread = thread_of_group();
  const u32 lane = thread % kWarpSize;
  const u32 first = own_first_row(thread) + lane / kPieces;
  const u32 own_column = column + lane % kPieces * kElements;
  const u32 columns =
      own_column < tensor.columns ? smaller(kElements, tensor.columns - own_column) : 0;
#pragma unroll(kUnrolled)
  for (u32 i = 0; i < kWarpRows / kRows; ++i) {
    const u32 inside = first + i * kRows;
    const u32 offset = inside * kRowBytes + lane % kPieces * kPieceBytes;
    const u32 place = kBytes == kElementBytes ? swizzle_128b(offset) : swizzle_64b(offset);
    move(plane + place, tensor.element<kBytes>(row + inside, own_column),
         row + inside < tensor.rows ? columns : 0);
  }
}

template <u32 kBytes>
__device__ __forceinline__ void load_elements(SharedAddress plane, const StoredOperand& tensor,
                                              u32 row, u32 column) {
  if (tensor.template is_aligned<kBytes>()) {
    visit_own_pieces<kBytes, 4>(
        plane, tensor, row, column, [&](SharedAddress to, u64 from, u32 count) {
          copy_async(to, count == 0 ? tensor.address : from, count * kBytes);
        });
  } else {
    visit_own_pieces<kBytes, 1>(plane, tensor, row, column, copy_by_elements<kBytes>);
  }
}
// Begins to load a plane of 16-bit elements or of bytes; elements outside the tensor become zeros.
// The caller commits the copies.
__device__ __forceinline__ void load_plane(SharedAddress plane, const StoredOperand& tensor,
                                           u32 row, u32 column, bool has_bytes) {
  if (has_bytes) {
    load_elements<1>(plane, tensor, row, column);
  } else {
    load_elements<kElementBytes>(plane, tensor, row, column);
  }
}

// Writes a plane of 16-bit elements to its tensor. Elements of the plane that lie outside the
// tensor are not written.
__device__ __forceinline__ void store_plane(SharedAddress plane, const StoredOperand& tensor,
                                            u32 row, u32 column) {
  if (tensor.is_aligned<kElementBytes>() && tensor.columns % (kPieceBytes / kElementBytes) == 0) {
    visit_own_pieces<kElementBytes, 4>(plane, tensor, row, column,
                                       [](SharedAddress from, u64 to, u32 count) {
                                         u32 words[4];
                                         load_piece(words, from);
                                         if (count != 0) device::store_piece(to, words);
                                       });
  } else {
    visit_own_pieces<kElementBytes, 1>(
        plane, tensor, row, column, [](SharedAddress from, u64 to, u32 count) {
#pragma unroll 1
          for (u32 i = 0; i < count; ++i)
            reinterpret_cast<u16*>(to)[i] =
                static_cast<u16>(load_word(from + i / 2 * 4) >> i % 2 * 16);
        });
  }
}

// Writes a thread's values of a fragment to a plane, as stmatrix does on Hopper. `first`: address
// of the thread's first pair of fragment 0 (pair_offset). Pairs are in the order of accumulators.
__device__ __forceinline__ void stage_fragment(SharedAddress first, u32 fragment,
                                               const u32 (&pairs)[4]) {
#pragma unroll
  for (u32 pair = 0; pair < 4; ++pair) {
    // Rows that are eight apart have the same swizzle.
    const SharedAddress left = first + pair % 2 * (8 * kSwizzleBytes);
    store_word(left ^ (fragment_step(fragment) + pair / 2 * kPieceBytes), pairs[pair]);
  }
}
constexpr u32 pair_offset(u32 thread) {
  return swizzle_128b(fragment_row(thread, 0) * kSwizzleBytes +
                      fragment_column(thread, 0) * kElementBytes);
}

}  // namespace coda::device::sm80
