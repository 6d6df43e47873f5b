// SPDX-License-Identifier: Apache-2.0
// Stores a tile transposed: a column of the tile becomes a row of the tensor. 8-bit values (GEMMs
// with 8-bit operands need both orders) are gathered four rows to a word by each thread and pass
// through shared memory, so that 64 neighbouring bytes are written together. Other types are stored
// one by one, because they need no speed.
#pragma once

#include "device/ptx/lanes.cuh"
#include "device/tiles/vector_access.cuh"

namespace coda::device {

// A thread's eight rows of its eight columns, as bytes.
struct TransposedBytes {
  u32 row[kWarpRows][2];
};

// `row`: one of the thread's eight, a compile-time constant.
template <Element kStored>
__device__ __forceinline__ void put_row(TransposedBytes& to, u32 row,
                                        const Elements<kThreadColumns>& x) {
  static_assert(bytes_of(kStored) == 1);
  const PackedEight<kStored> bytes = packed<kStored>(x);
  to.row[row][0] = bytes.word[0];
  to.row[row][1] = bytes.word[1];
}

// Transposes a 4x4 block of bytes.
__device__ __forceinline__ void transpose_bytes(u32 (&word)[4]) {
  const u32 first = __byte_perm(word[0], word[1], 0x5140);  // columns 0 and 1 of rows 0 and 1
  const u32 second = __byte_perm(word[0], word[1], 0x7362);
  const u32 third = __byte_perm(word[2], word[3], 0x5140);
  const u32 fourth = __byte_perm(word[2], word[3], 0x7362);
  word[0] = __byte_perm(first, third, 0x5410);
  word[1] = __byte_perm(first, third, 0x7632);
  word[2] = __byte_perm(second, fourth, 0x5410);
  word[3] = __byte_perm(second, fourth, 0x7632);
}

// Floats of shared memory. The 16 words of a column have a pitch of 17, which avoids bank conflicts
// for reads and writes.
inline constexpr u32 kTransposedPitch = kPartialSpan / 4 + 1;
inline constexpr u32 kTransposedScratch = kBlockColumns * kTransposedPitch;

// Called by all threads of a block. `natural(j)` is the tensor's row for base column j; its rows
// are `pitch` bytes apart. The block's rows of the tile start at `first`; the tile has `rows` and
// `columns`.
template <class Natural>
__device__ __forceinline__ void store_transposed_bytes(float* scratch, const TransposedBytes& x,
                                                       u64 tensor, u32 pitch, u32 first, u32 rows,
                                                       u32 columns, const TilePosition& at,
                                                       const Natural& natural) {
  const u32 thread = thread_index();
#pragma unroll
  for (u32 block = 0; block < kThreadColumns / 4 * (kWarpRows / 4); ++block) {
    const u32 half = block % 2;  // of the columns
    const u32 four = block / 2;  // rows
    u32 word[4];
#pragma unroll
    for (u32 k = 0; k < 4; ++k) word[k] = x.row[four * 4 + k][half];
    transpose_bytes(word);
#pragma unroll
    for (u32 k = 0; k < 4; ++k) {
      const u32 place = ((half * 4 + k) * 32 + thread % 32) * kTransposedPitch;
      scratch[place + thread / 32 * (kWarpRows / 4) + four] = word_value<Element::f32>(word[k]);
    }
  }
  synchronize_block();
  constexpr u32 kPieces = kPartialSpan / 16;  // of 16 rows, in a column
#pragma unroll
  for (u32 round = 0; round < kPieces; ++round) {
    const u32 inside = round * (kTileThreads / kPieces) + thread / kPieces;
    const u32 column = at.column / kBlockColumns * kBlockColumns + inside;
    const u32 row = first + thread % kPieces * 16;
    if (column >= columns || row >= rows) continue;
    const u32 place = (inside % kThreadColumns * 32 + inside / kThreadColumns) * kTransposedPitch +
                      thread % kPieces * 4;
    u32 word[4];
#pragma unroll
    for (u32 w = 0; w < 4; ++w) word[w] = float_word(scratch[place + w]);
    const u64 address = tensor + static_cast<u64>(natural(column)) * pitch + row;
    if (row + 16 <= rows && address % 16 == 0) {
      store_piece(address, word);
      continue;
    }
#pragma unroll
    for (u32 i = 0; i < 16; ++i) {
      if (row + i >= rows) continue;
      *reinterpret_cast<unsigned char*>(address + i) =
          static_cast<unsigned char>(word[i / 4] >> (8 * (i % 4)));
    }
  }
  synchronize_block();  // the next store writes the same memory
}

// One row of the tile. `column(i)` is the tensor's row for the thread's column i.
template <Element kStored, class Column>
__device__ __forceinline__ void store_column_elements(u64 tensor, u32 pitch, u32 row, u32 valid,
                                                      const Column& column,
                                                      const Elements<kThreadColumns>& x) {
#pragma unroll
  for (u32 i = 0; i < kThreadColumns; ++i) {
    if (i < valid) {
      store_element<kStored>(tensor, static_cast<u64>(column(i)) * pitch + row, x.value[i]);
    }
  }
}

}  // namespace coda::device
