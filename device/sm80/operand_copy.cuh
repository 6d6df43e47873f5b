// SPDX-License-Identifier: Apache-2.0
// Copies one operand of a GEMM from global memory to the stages of a tile, block after block along
// K. A block is 128 bytes deep and lies in its stage in rows of 128 bytes, swizzled (swizzle_128b).
// For an operand that is contiguous along K, a row holds one outer index. For any other operand (of
// 16-bit elements), a row holds one k of a panel of 64 outer indices.
//
// A thread copies the same pieces of 16 bytes in each block. They are 32 rows apart, so their
// addresses differ from the thread's first by multiples of one step, and a row's swizzle is that of
// the first. So a copy takes an address, a size and an instruction.
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

// a - b, but at least 0.
constexpr u32 excess(u32 a, u32 b) { return a > b ? a - b : 0; }

// The offset in an operand's part of a stage. `k` counts 16-bit elements.
template <Major kMajor>
constexpr u32 stage_offset(u32 outer, u32 k) {
  return kMajor == Major::k
             ? swizzle_128b(outer * kSwizzleBytes + k * kElementBytes)
             : outer / kOuterPanel * kOuterPanelBytes +
                   swizzle_128b(k * kSwizzleBytes + outer % kOuterPanel * kElementBytes);
}

// kOuter: rows or columns of the tile. kBytes: of an element.
template <Major kMajor, u32 kOuter, u32 kBytes>
struct OperandCopy {
  static constexpr u32 kPieces = kOuter / kRowsApart;  // of a thread in a block
  static_assert(kOuter % kRowsApart == 0 && (kMajor == Major::k || kBytes == kElementBytes));

  u64 from;   // the thread's first piece of the next block
  u64 step;   // bytes between its pieces
  u32 rows;   // of the rectangle, from the row of the first piece on
  u32 bytes;  // of a row of the rectangle, from the first piece on

  OperandCopy() = default;
  // The blocks of K from 0 on for the tile whose first row or column is `outer`.
  __device__ __forceinline__ OperandCopy(const StoredOperand& operand, u32 outer) {
    const u32 line = threadIdx.x / kRowPieces;
    const u32 inside = threadIdx.x % kRowPieces * (kPieceBytes / kBytes);
    const u32 row = kMajor == Major::k ? outer + line : line;
    const u32 column = kMajor == Major::k ? inside : outer + inside;
    from = operand.element<kBytes>(row, column);
    step = static_cast<u64>(operand.stride) * (kRowsApart * kBytes);
    rows = excess(operand.rows, row);
    bytes = excess(operand.columns, column) * kBytes;
  }

  // Copies a piece to the stage whose part for this operand begins at `stage`. If not kAligned, it
  // waits for the elements.
  template <bool kAligned>
  __device__ __forceinline__ void copy(u32 piece, SharedAddress stage) const {
    constexpr u32 kPanelPieces = kBlockK / kRowsApart;
    const u32 below = kMajor == Major::k ? piece : piece % kPanelPieces;
    const u32 beside = kMajor == Major::k ? 0 : piece / kPanelPieces * kSwizzleBytes;
    const u32 count = below * kRowsApart < rows ? smaller(kPieceBytes, excess(bytes, beside)) : 0;
    const u64 source = from + below * step + beside;
    const SharedAddress to =
        stage + (swizzle_128b(threadIdx.x * kPieceBytes) + piece * (kRowsApart * kSwizzleBytes));
    if constexpr (kAligned) {
      copy_async(to, source, count);
    } else {
      copy_by_elements(to, source, count / kBytes);
    }
  }

  // Goes on to the next block of K.
  __device__ __forceinline__ void advance() {
    if constexpr (kMajor == Major::k) {
      from += kSwizzleBytes;
      bytes = excess(bytes, kSwizzleBytes);
    } else {
      from += kBlockK / kRowsApart * step;
      rows = excess(rows, kBlockK);
    }
  }

 private:
  __device__ __forceinline__ static void copy_by_elements(SharedAddress to, u64 from, u32 count) {
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
};

}  // namespace coda::device::sm80
