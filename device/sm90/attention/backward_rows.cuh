// SPDX-License-Identifier: Apache-2.0
// The kernel before backward.cuh: what it needs to know of each query.
#pragma once

#include "device/attention/backward_queries.cuh"
#include "device/sm90/attention/tiles.cuh"
#include "device/sm90/ptx/bulk.cuh"

namespace coda::device::attention::sm90 {

inline constexpr u32 kBlockZeros = 32;  // words that a CTA clears

template <HeadShape kHead>
__device__ __forceinline__ BackwardScratch scratch_of(const AttentionSizes& sizes) {
  return {sizes.sequences(), sizes.sequence, sizes.heads, sizes.kv_heads, kHead};
}

// Two numbers for each query, fp32 [sequences, heads, tokens rounded up to whole blocks].
struct RowSums {
  u64 subtracted;  // from its exponents of 2: its log-sum-exp
  u64 dots;        // dy·y
  u32 padded;      // tokens of a sequence

  __device__ __forceinline__ RowSums(u64 data, const BackwardScratch& scratch,
                                     const AttentionSizes& sizes)
      : subtracted(data + scratch.subtracted),
        dots(data + scratch.dots),
        padded(round_up(sizes.sequence, kBackwardKeys)) {}

  // The index of a query's number.
  __device__ __forceinline__ u32 at(const AttentionSizes& sizes, u32 sequence, u32 head,
                                    u32 token) const {
    return (sequence * sizes.heads + head) * padded + token;
  }
  __device__ __forceinline__ QueryNumbers numbers() const { return {subtracted, dots, padded}; }
};

// Fills RowSums and clears what must begin as 0. One CTA for each head, sequence and kRowsTokens
// tokens, of tokens rounded up to whole blocks of keys; four lanes have a token.
template <HeadShape kHead>
__device__ __forceinline__ void begin_backward(const AttentionBackward& in, u64 scratch_data,
                                               const HeadRows& dq) {
  const AttentionSizes& sizes = in.sizes;
  const BackwardScratch scratch = scratch_of<kHead>(sizes);
  const RowSums rows(scratch_data, scratch, sizes);
  const u32 heads = sizes.sequences() * sizes.heads;
  const u32 sequence = block_index() % heads / sizes.heads;
  const u32 head = block_index() % sizes.heads;
  const u32 token = block_index() / heads * kRowsTokens + thread_index() / 4;

  // The number of the next tile and the progress of blocks of keys. CTAs are twice as many.
  if (block_index() * kBlockZeros < scratch.subtracted / 4 && thread_index() < kBlockZeros)
    store_element<Element::f32>(scratch_data, block_index() * kBlockZeros + thread_index(), 0.0f);
  const bool exists = token < sizes.sequence;
  const u64 row = static_cast<u64>(sequence) * sizes.sequence + token;
  const float subtracted = subtracted_exponent(
      exists ? load_element<Element::f32>(in.lse, row * in.lse_stride + head) : -kInfinity);
  const float dot = sum_of_quad(
      exists ? share_of_dot<kHead.element>(
                   TokenRows<kHead.value_dim>(in.dy, sequence, sizes.sequence, head),
                   TokenRows<kHead.value_dim>(in.y, sequence, sizes.sequence, head), token)
             : 0.0f);
  const u32 index = rows.at(sizes, sequence, head, token);
  if (own_lane() % 4 == 0) {
    store_element<Element::f32>(rows.subtracted, index, subtracted);
    store_element<Element::f32>(rows.dots, index, dot);
  }
  if (!kHead.packed) return;
  // Tokens in no document: no CTA of the backward may store their dq.
  const TokenSpan seen = sizes.keys_of(sequence, smaller(token, sizes.sequence - 1));
  if (exists && seen.first >= seen.last) {
    const TokenRows<kHead.dim> to(dq, sequence, sizes.sequence, head);
    for (u32 i = own_lane() % 4; i < kHead.dim; i += 4)
      store_element<kHead.element>(to.at(token, i), 0, 0.0f);
  }
  const u64 sums =
      scratch_data + scratch.query_sums + wide_product(index, output_columns(kHead) * kFloatBytes);
  for (u32 i = own_lane() % 4; i < output_columns(kHead) / 4; i += 4)
    store_piece(sums + i * 16, {});
}

}  // namespace coda::device::attention::sm90
