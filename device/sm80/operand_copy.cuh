// SPDX-License-Identifier: Apache-2.0
// Copies one operand of a GEMM from global memory to shared memory with cp.async, one block of K
// after another. A block is 128 bytes deep along K. Each block is copied to one stage of the ring,
// in rows of 128 bytes that are swizzled (swizzle_128b). If the operand is contiguous along K, a
// row has one outer index (a row of A or a column of B). Otherwise (16-bit elements only), a row
// has one k and 64 consecutive outer indices, which are called a panel.
//
// A piece is the 16 bytes of one cp.async. A thread copies the same pieces of every block. The
// pieces of a thread are 32 rows apart, so all of them have the same swizzle, and the address of a
// piece is the address of the first piece plus a multiple of `step`. A block is whole if no piece
// crosses the border of the operand and K does not end inside the block. Copying a piece of a whole
// block takes one addition and one cp.async, without bounds checks.
#pragma once

#include "device/layout/fragment.cuh"
#include "device/sm80/config.cuh"
#include "device/sm80/ptx/async_copy.cuh"

namespace coda::device::sm80 {

inline constexpr u32 kPieceBytes = 16;  // what a thread copies at a time
inline constexpr u32 kRowPieces = kSwizzleBytes / kPieceBytes;
inline constexpr u32 kRowsApart = kThreads / kRowPieces;  // rows between a thread's pieces

// The rectangle of a tensor that a GEMM reads as one operand. Elements outside the rectangle are
// zero.
struct StoredOperand {
  u64 address;  // of the tensor's first element
  u32 stride;   // elements between rows
  u32 rows;     // number of rows of the rectangle
  u32 columns;
  u32 first_row;  // where the rectangle begins in the tensor
  u32 first_column;

  template <u32 kBytes>  // of an element
  __device__ __forceinline__ u64 element(u32 row, u32 column) const {
    return address + (static_cast<u64>(first_row + row) * stride + first_column + column) * kBytes;
  }
  // Whether each piece of a row begins at a multiple of 16 bytes.
  template <u32 kBytes>
  __device__ __forceinline__ bool is_aligned() const {
    return (address + static_cast<u64>(first_column) * kBytes) % kPieceBytes == 0 &&
           stride % (kPieceBytes / kBytes) == 0;
  }
};

// The offset in an operand's part of a stage. `k` counts 16-bit elements.
template <Major kMajor>
constexpr u32 stage_offset(u32 outer, u32 k) {
  return kMajor == Major::k
             ? swizzle_128b(outer * kSwizzleBytes + k * kElementBytes)
             : outer / kOuterPanel * kOuterPanelBytes +
                   swizzle_128b(k * kSwizzleBytes + outer % kOuterPanel * kElementBytes);
}

// Copies the first `count` elements of a piece one by one and fills the rest with zeros.
template <u32 kBytes>
__device__ __forceinline__ void copy_by_elements(SharedAddress to, u64 from, u32 count) {
  u32 words[kPieceBytes / 4] = {};
#pragma unroll
  for (u32 i = 0; i < kPieceBytes / kBytes; ++i) {
    u32 bits = 0;
    if (i < count) {
      if constexpr (kBytes == 1) {
        bits = reinterpret_cast<const u8*>(from)[i];
      } else {
        bits = reinterpret_cast<const u16*>(from)[i];
      }
    }
    words[i * kBytes / 4] |= bits << i * kBytes % 4 * 8;
  }
  store_piece(to, words);
}

// kOuter: rows or columns of the tile. kBytes: of an element.
template <Major kMajor, u32 kOuter, u32 kBytes>
struct OperandCopy {
  static constexpr u32 kPieces = kOuter / kRowsApart;  // of a thread in a block
  static constexpr u32 kBlockElements = kSwizzleBytes / kBytes;
  static_assert(kOuter % kRowsApart == 0 && (kMajor == Major::k || kBytes == kElementBytes));

  u64 from;    // global address of the thread's first piece of the next block
  u64 step;    // bytes between consecutive pieces of the thread
  u32 inside;  // bit i is set if the outer indices of piece i are inside the operand

  OperandCopy() = default;
  // Starts at the first block of K. `outer` is the first row (of A) or column (of B) of the tile.
  __device__ __forceinline__ OperandCopy(const StoredOperand& operand, u32 outer) {
    from = operand.element<kBytes>(row_of(0, outer, 0), column_of(0, outer, 0));
    step = static_cast<u64>(operand.stride) * (kRowsApart * kBytes);
    inside = 0;
#pragma unroll
    for (u32 piece = 0; piece < kPieces; ++piece) {
      const bool is_inside = kMajor == Major::k ? row_of(piece, outer, 0) < operand.rows
                                                : column_of(piece, outer, 0) < operand.columns;
      inside |= is_inside ? 1u << piece : 0;
    }
  }

  // The number of whole blocks before the first block that is not whole. Returns 0 if the operand's
  // rows are not 16-byte aligned.
  __device__ __forceinline__ static u32 whole_blocks(const StoredOperand& operand, u32 outer) {
    if (!operand.template is_aligned<kBytes>()) return 0;
    if constexpr (kMajor == Major::k) {
      return operand.columns / kBlockElements;
    } else {
      const bool is_whole =
          operand.columns * kBytes % kPieceBytes == 0 || outer + kOuter <= operand.columns;
      return is_whole ? operand.rows / kBlockK : 0;
    }
  }

  // Copies one piece of a whole block. `stage` is the shared-memory address where the stage stores
  // this operand. A piece outside the operand becomes zeros.
  __device__ __forceinline__ void copy_whole(u32 piece, SharedAddress stage) const {
    const u32 below = kMajor == Major::k ? piece : piece % kPanelPieces;
    const u32 beside = kMajor == Major::k ? 0 : piece / kPanelPieces * kSwizzleBytes;
    copy_async_or_clear(place_of(piece, stage), from + below * step + beside,
                        (inside >> piece & 1) != 0);
  }
  // Moves `from` to the next block.
  __device__ __forceinline__ void advance() {
    from += kMajor == Major::k ? kSwizzleBytes : kBlockK / kRowsApart * step;
  }

  // Copies the thread's pieces of block number `block`, whether the block is whole or not. Elements
  // outside the operand become zeros. If rows are not 16-byte aligned, the thread copies element by
  // element and waits for its loads.
  __device__ __forceinline__ static void copy_block(const StoredOperand& operand, u32 outer,
                                                    u32 block, SharedAddress stage) {
    const bool is_aligned = operand.template is_aligned<kBytes>();
#pragma unroll 1
    for (u32 piece = 0; piece < kPieces; ++piece) {
      const u32 row = row_of(piece, outer, block);
      const u32 column = column_of(piece, outer, block);
      const bool exists = row < operand.rows && column < operand.columns;
      const u32 count = exists ? smaller(kPieceElements, operand.columns - column) : 0;
      const u64 source = exists ? operand.element<kBytes>(row, column) : operand.address;
      if (is_aligned) {
        copy_async(place_of(piece, stage), source, count * kBytes);
      } else {
        copy_by_elements<kBytes>(place_of(piece, stage), source, count);
      }
    }
  }

 private:
  static constexpr u32 kPieceElements = kPieceBytes / kBytes;
  static constexpr u32 kPanelPieces = kBlockK / kRowsApart;

  // Where a piece of the thread begins in the rectangle.
  __device__ __forceinline__ static u32 row_of(u32 piece, u32 outer, u32 block) {
    const u32 line = piece * kRowsApart + threadIdx.x / kRowPieces;
    return kMajor == Major::k ? outer + line : block * kBlockK + line % kBlockK;
  }
  __device__ __forceinline__ static u32 column_of(u32 piece, u32 outer, u32 block) {
    const u32 element = threadIdx.x % kRowPieces * kPieceElements;
    return kMajor == Major::k ? block * kBlockElements + element
                              : outer + piece / kPanelPieces * kOuterPanel + element;
  }
  __device__ __forceinline__ static SharedAddress place_of(u32 piece, SharedAddress stage) {
    return stage + (swizzle_128b(threadIdx.x * kPieceBytes) + piece * (kRowsApart * kSwizzleBytes));
  }
};

}  // namespace coda::device::sm80
