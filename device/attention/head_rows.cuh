// SPDX-License-Identifier: Apache-2.0
// The rows of one head in memory: asynchronous copies of a block of rows to shared memory, and
// stores of accumulators.
// Invariant: elements outside the head's columns and outside the sequence's tokens are zero in
// shared memory, and are never written in memory.
#pragma once

#include "device/attention/fragments.cuh"
#include "device/attention/sizes.cuh"
#include "device/element.cuh"
#include "device/ptx/memory_moves.cuh"
#include "device/sm80/ptx/async_copy.cuh"

namespace coda::device::attention {

inline constexpr u32 kPiece = 8;  // elements in 16 bytes

// The rows of one sequence and one head, of kColumns columns.
template <u32 kColumns>
struct TokenRows {
  u64 first;   // address of the first token's first element
  u32 stride;  // bytes between tokens
  u32 tokens;
  bool is_aligned;  // rows begin at multiples of 16 bytes and consist of whole pieces

  __device__ __forceinline__ TokenRows(const HeadRows& tensor, u32 sequence, u32 sequence_tokens,
                                       u32 head)
      : first(tensor.data +
              (static_cast<u64>(sequence) * sequence_tokens * tensor.stride + head * kColumns) *
                  kElementBytes),
        stride(tensor.stride * kElementBytes),
        tokens(sequence_tokens),
        is_aligned(kColumns % kPiece == 0 && first % 16 == 0 && stride % 16 == 0) {}

  __device__ __forceinline__ u64 at(u32 token, u32 column) const {
    return first + wide_product(token, stride) + column * kElementBytes;
  }
};

// Copies kRows tokens from `first` on; the copies belong to the calling threads' next group.
template <u32 kRows, u32 kWidth, u32 kColumns>
__device__ __forceinline__ void copy_rows(const SharedRows<kWidth>& to,
                                          const TokenRows<kColumns>& from, u32 first) {
  constexpr u32 kRowPieces = kWidth / kPiece;
  constexpr u32 kPieces = kRows * kRowPieces;
  const auto place_of = [&](u32 piece, auto use) {
    const u32 row = piece / kRowPieces;
    const u32 column = piece % kRowPieces * kPiece;
    const bool exists = first + row < from.tokens && column < kColumns;
    use(to.at(row, column), exists ? from.at(first + row, column) : from.first,
        exists ? smaller(kColumns - column, kPiece) : 0);
  };
  if (from.is_aligned) {
#pragma unroll 4
    for (u32 i = 0; i < ceil_div(kPieces, kThreads); ++i) {
      const u32 piece = i * kThreads + thread_index();
      if (kPieces % kThreads != 0 && piece >= kPieces) break;
      place_of(piece, [](SharedAddress place, u64 address, u32 count) {
        sm80::copy_async(place, address, count * kElementBytes);
      });
    }
    return;
  }
#pragma unroll 1
  for (u32 piece = thread_index(); piece < kPieces; piece += kThreads) {
    place_of(piece, [](SharedAddress place, u64 address, u32 count) {
      const u16* const elements = reinterpret_cast<const u16*>(address);
      u32 words[kPiece / 2] = {};
#pragma unroll
      for (u32 i = 0; i < kPiece; ++i) {
        if (i < count) words[i / 2] |= static_cast<u32>(elements[i]) << i % 2 * 16;
      }
      sm80::store_piece(place, words);
    });
  }
}

// Stores a warp's sums times a factor, which `factor_of` gives for each of a thread's rows. The
// accumulators' first row is token `first`, and their first column is column `first_column`.
template <Element kElement, u32 kRows, u32 kWidth, u32 kColumns, class FactorOf>
__device__ __forceinline__ void store_rows(const TokenRows<kColumns>& to, u32 first,
                                           u32 first_column,
                                           const Accumulators<kRows, kWidth>& sums,
                                           FactorOf factor_of) {
#pragma unroll
  for (u32 row = 0; row < kRows / 8; ++row) {
    const u32 token = first + row_of(row);
    if (token >= to.tokens) continue;
    const float factor = factor_of(row);
#pragma unroll
    for (u32 i = 0; i < kWidth / 4; i += 2) {
      const u32 column = first_column + column_of(i);
      if (column >= kColumns) continue;
      const float low = sums.at(row, i) * factor;
      const float high = sums.at(row, i + 1) * factor;
      if (to.is_aligned) {
        *reinterpret_cast<u32*>(to.at(token, column)) = pack<kElement>(low, high);
      } else {
        store_element<kElement>(to.at(token, column), 0, low);
        if (column + 1 < kColumns) store_element<kElement>(to.at(token, column), 1, high);
      }
    }
  }
}

}  // namespace coda::device::attention
