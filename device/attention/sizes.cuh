// SPDX-License-Identifier: Apache-2.0
// The sizes and tensors of a call of attention, and which keys a query sees. All kernels of
// attention ask this file, so a new kind of mask is added here. Invariant: both ends of keys_of()
// and of queries_of() ascend with the token. So the ends of a block of tokens are those of its
// first and its last token.
#pragma once

#include "device/types.cuh"

namespace coda::device {

// A range of tokens of one sequence.
struct TokenSpan {
  u32 first;
  u32 last;  // one past the last
};

// A tensor [rows, heads * columns of a head].
struct HeadRows {
  u64 data;
  u32 stride;  // elements between rows
};

struct AttentionSizes {
  u32 rows;      // tokens of all sequences
  u32 sequence;  // tokens of one sequence
  u32 heads;
  u32 kv_heads;
  u32 causal;
  u32 window;      // causal only: number of tokens that a token sees, including itself; 0: all
  float scale;     // scores are dot products times this
  float soft_cap;  // a score becomes soft_cap * tanh(score / soft_cap); 0: no cap
  // i32 [rows, 2]: the span of the token's document in its sequence. Tokens see their document
  // only. data is 0 if each sequence is one document. With two more columns, the first two are the
  // keys that a query sees, and the others are the queries that see a key.
  HeadRows documents = {};
  // Address of fp32 [heads]: a logit of each head whose exponential is added only to the
  // denominator of softmax. 0: there are no sinks.
  u64 sinks = 0;
  u32 queries_column = 0;  // of `documents`: where the queries that see a key are

  constexpr u32 group() const { return heads / kv_heads; }
  constexpr u32 sequences() const { return rows / sequence; }

  // The keys that a query sees, and the queries that see a key. `of` is the index of the sequence.
  __device__ __forceinline__ TokenSpan keys_of(u32 of, u32 query) const {
    return within_document(of, query, 0,
                           {window != 0 && query >= window ? query + 1 - window : 0,
                            causal != 0 ? smaller(query + 1, sequence) : sequence});
  }
  __device__ __forceinline__ TokenSpan queries_of(u32 of, u32 key) const {
    return within_document(
        of, key, queries_column,
        {causal != 0 ? key : 0, window != 0 ? smaller(key + window, sequence) : sequence});
  }

  // The keys that some query of a block sees, and the queries of which some see a key of a block.
  __device__ __forceinline__ TokenSpan keys_of_block(u32 of, u32 first, u32 count) const {
    return {keys_of(of, first).first, keys_of(of, smaller(first + count, sequence) - 1).last};
  }
  __device__ __forceinline__ TokenSpan queries_of_block(u32 of, u32 first, u32 count) const {
    return {queries_of(of, first).first, queries_of(of, smaller(first + count, sequence) - 1).last};
  }
  // Whether every query of a block sees every key of a block. Queries behind the sequence's end do
  // not count, keys behind it are seen by none.
  __device__ __forceinline__ bool sees_all(u32 of, u32 query, u32 queries, u32 key,
                                           u32 keys) const {
    const u32 last = smaller(query + queries, sequence) - 1;
    return keys_of(of, last).first <= key && key + keys <= keys_of(of, query).last;
  }

 private:
  // The intersection of a span with the token's document. Ends beyond the sequence are clamped, so
  // that wrong input causes no access out of bounds.
  __device__ __forceinline__ TokenSpan within_document(u32 of, u32 token, u32 column,
                                                       const TokenSpan& span) const {
    if (documents.data == 0) return span;
    const u64 row = static_cast<u64>(of) * sequence + smaller(token, sequence - 1);
    const u32* const ends =
        reinterpret_cast<const u32*>(documents.data) + row * documents.stride + column;
    return {smaller(larger(ends[0], span.first), sequence), smaller(ends[1], span.last)};
  }
};

// The operands of a backward: q [rows, heads * dim], k [rows, kv_heads * dim], v [rows, kv_heads *
// value_dim], y and dy [rows, heads * value_dim], lse fp32 [rows, heads].
struct AttentionBackward {
  AttentionSizes sizes;
  HeadRows q, k, v, y, dy;
  u64 lse;
  u32 lse_stride;
};

}  // namespace coda::device
