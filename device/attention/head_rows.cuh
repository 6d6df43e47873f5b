// SPDX-License-Identifier: Apache-2.0
// The rows of one head in memory: asynchronous copies of a block of rows to shared memory, and
// stores of accumulators.
// Invariant: elements outside the head's columns and outside the sequence's tokens are zero in
// shared memory, and are never written in memory.
#pragma once

#include "device/attention/fragments.cuh"
#include "device/attention/sizes.cuh"
#include "device/element.cuh"
#include "device/ptx/global_memory.cuh"
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
  const u32 thread = thread_index_anew();
  constexpr u32 kTurns = ceil_div(kPieces, kThreads);
  if (kWidth == kColumns && from.is_aligned && first + kRows <= from.tokens) {
    constexpr bool kSameColumn = kThreads % kRowPieces == 0;  // in each turn of a thread
    const u32 own_row = thread / kRowPieces;
    const u32 own_column = thread % kRowPieces * kPiece;
    const u64 own = from.at(first + own_row, own_column);
#pragma unroll
    for (u32 turn = 0; turn < kTurns; ++turn) {
      const u32 piece = turn * kThreads + thread;
      if (kPieces % kThreads != 0 && piece >= kPieces) break;
      if constexpr (kSameColumn) {
        constexpr u32 kTurnRows = kThreads / kRowPieces;
        sm80::copy_async(to.at(own_row, own_column) + turn * kTurnRows * row_bytes(kWidth),
                         own + wide_product(turn * kTurnRows, from.stride));
      } else {
        const u32 row = piece / kRowPieces;
        const u32 column = piece % kRowPieces * kPiece;
        sm80::copy_async(to.at(row, column), from.at(first + row, column));
      }
    }
    return;
  }
#pragma unroll 1
  for (u32 piece = thread; piece < kPieces; piece += kThreads) {
    const u32 row = piece / kRowPieces;
    const u32 column = piece % kRowPieces * kPiece;
    const bool exists = first + row < from.tokens && column < kColumns;
    const u32 count = exists ? smaller(kColumns - column, kPiece) : 0;
    const u64 address = exists ? from.at(first + row, column) : from.first;
    if (from.is_aligned) {
      sm80::copy_async(to.at(row, column), address, count * kElementBytes);
    } else {
      const u16* const elements = reinterpret_cast<const u16*>(address);
      u32 words[kPiece / 2] = {};
#pragma unroll
      for (u32 i = 0; i < kPiece; ++i) {
        if (i < count) words[i / 2] |= static_cast<u32>(elements[i]) << i % 2 * 16;
      }
      sm80::store_piece(to.at(row, column), words);
    }
  }
}

// Stores the sums times a factor, which `factor_of` gives for each of a thread's rows. The first
// row of the CTA's block is token `first`, and the first column is column `first_column`.
template <Element kElement, u32 kRows, u32 kWidth, u32 kColumns, class FactorOf>
__device__ __forceinline__ void store_rows(const TokenRows<kColumns>& to, u32 first,
                                           u32 first_column,
                                           const Accumulators<kRows, kWidth>& sums,
                                           FactorOf factor_of) {
#pragma unroll
  for (u32 row = 0; row < kRows / 8; ++row) {
    const u32 token = first + row_of<kRows>(row);
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

// Transposes a 4 x 4 matrix of words, of which each lane of a quad has a column: afterwards it has
// the row of its number.
__device__ __forceinline__ void transpose_quad(u32 (&words)[4]) {
  const u32 lane = own_lane();
  const auto swap = [](u32& low, u32& high, bool keeps_high, u32 mask) {
    const u32 received = exchange(keeps_high ? low : high, mask);
    (keeps_high ? low : high) = received;
  };
#pragma unroll
  for (u32 i = 0; i < 4; i += 2) swap(words[i], words[i + 1], lane % 2 != 0, 1);
#pragma unroll
  for (u32 i = 0; i < 2; ++i) swap(words[i], words[i + 2], lane / 2 % 2 != 0, 2);
}

// store_rows() in pieces of 16 bytes where memory allows it.
template <Element kElement, u32 kRows, u32 kWidth, u32 kColumns, class FactorOf>
__device__ __forceinline__ void store_pieces(const TokenRows<kColumns>& to, u32 first,
                                             u32 first_column,
                                             const Accumulators<kRows, kWidth>& sums,
                                             FactorOf factor_of) {
  if (!to.is_aligned) return store_rows<kElement>(to, first, first_column, sums, factor_of);
  static_assert(kColumns % 32 == 0);
#pragma unroll
  for (u32 row = 0; row < kRows / 8; ++row) {
    const u32 token = first + row_of<kRows>(row);
    const float factor = factor_of(row);
#pragma unroll
    for (u32 i = 0; i < smaller(kWidth, kColumns) / 4; i += 8) {  // 32 columns
      if (first_column + 4 * i >= kColumns) break;
      u32 words[4];
#pragma unroll
      for (u32 piece = 0; piece < 4; ++piece) {
        words[piece] = pack<kElement>(sums.at(row, i + 2 * piece) * factor,
                                      sums.at(row, i + 2 * piece + 1) * factor);
      }
      transpose_quad(words);
      if (token < to.tokens)
        store_piece(to.at(token, first_column + 4 * i + own_lane() % 4 * kPiece), words);
    }
  }
}

// Stores the log-sum-exp of a thread's rows, fp32 [rows, heads].
template <u32 kOwnRows>
__device__ __forceinline__ void store_log_sums(u64 lse, u32 lse_stride, const AttentionSizes& sizes,
                                               u32 sequence, u32 head, u32 first_query,
                                               const float (&log_sums)[kOwnRows]) {
  if (own_lane() % 4 != 0) return;
#pragma unroll
  for (u32 row = 0; row < kOwnRows; ++row) {
    const u32 query = first_query + row_of<8 * kOwnRows>(row);
    if (query >= sizes.sequence) continue;
    store_element<Element::f32>(
        lse, (static_cast<u64>(sequence) * sizes.sequence + query) * lse_stride + head,
        log_sums[row]);
  }
}

// For each row of a CTA's block, the span of tokens that it sees (for a key: that see it), in
// shared memory. Used only for packed documents, whose spans are read from global memory once.
// Causal masks and windows alone are computed where they are needed.
struct StoredSpans {
  SharedAddress start;

  __device__ __forceinline__ void store(u32 row, const TokenSpan& span) const {
    store_shared(start + row * 8, {span.first, span.last});
  }
  __device__ __forceinline__ TokenSpan at(u32 row) const {
    u32 ends[2];
    load_shared(ends, start + row * 8);
    return {ends[0], ends[1]};
  }
  // Whether the spans of the first `rows` rows all contain the tokens [first, first + count).
  __device__ __forceinline__ bool all_have(u32 rows, u32 first, u32 count) const {
    const u32 all_first = __float_as_uint(load_shared(start + (rows - 1) * 8));
    const u32 all_last = __float_as_uint(load_shared(start + 4));
    return all_first <= first && first + count <= all_last;
  }
};

}  // namespace coda::device::attention
