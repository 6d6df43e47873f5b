// SPDX-License-Identifier: Apache-2.0
// The first kernel of attention's backward on tensor cores: the gradient of queries, and two
// numbers for each query that the second kernel (backward_keys.cuh) reads. A CTA has a block of
// queries of one head and loops over the blocks of keys that some of its queries see. Invariant:
// sums are in the order of the keys, so results are bitwise repeatable.
#pragma once

#include "device/attention/head_rows.cuh"
#include "device/attention/scores.cuh"
#include "device/attention/sinks.cuh"
#include "device/ptx/global_memory.cuh"
#include "device/ptx/launch_memory.cuh"

namespace coda::device::attention {

// The log-sum-exp of each query as an exponent of 2, then the sum of dy * y for each query. Each is
// fp32 [sequences, heads, tokens], with the tokens rounded up to whole blocks.
struct Statistics {
  u64 data;
  u32 padded;  // tokens of a sequence
  u64 apart;   // numbers between the two

  __device__ __forceinline__ Statistics(u64 address, const AttentionSizes& sizes)
      : data(address),
        padded(round_up(sizes.sequence, kStatisticsBlock)),
        apart(static_cast<u64>(sizes.sequences()) * sizes.heads * padded) {}

  // The index of a query's number.
  __device__ __forceinline__ u64 at(const AttentionSizes& sizes, u32 sequence, u32 head,
                                    u32 token) const {
    return (static_cast<u64>(sequence) * sizes.heads + head) * padded + token;
  }
  __device__ __forceinline__ QueryNumbers numbers() const {
    return {data, data + apart * kFloatBytes, padded};
  }
};

// The exponent of 2 that is subtracted from a query's scores. Infinity for a query without keys and
// behind the sequence's end: its probabilities are 0.
__device__ __forceinline__ float subtracted_exponent(float lse) {
  return lse == -kInfinity ? kInfinity : lse * kLog2E;
}

// This lane's share of the sum of a * b over the columns of a token.
template <Element kElement, u32 kColumns>
__device__ __forceinline__ float share_of_dot(const TokenRows<kColumns>& a,
                                              const TokenRows<kColumns>& b, u32 token) {
  float sum = 0;
#pragma unroll 4
  for (u32 column = own_lane() % 4 * kPiece; column < kColumns; column += 4 * kPiece) {
    if (a.is_aligned && b.is_aligned) {
      u32 words[2][kPiece / 2];
      load_piece<Access::streamed>(words[0], a.at(token, column));
      load_piece<Access::streamed>(words[1], b.at(token, column));
#pragma unroll
      for (u32 i = 0; i < kPiece / 2; ++i) {
        float x[2];
        float y[2];
        unpack<kElement>(words[0][i], x[0], x[1]);
        unpack<kElement>(words[1][i], y[0], y[1]);
        sum = fmaf(x[1], y[1], fmaf(x[0], y[0], sum));
      }
    } else {
      for (u32 i = column; i < smaller(column + kPiece, kColumns); ++i) {
        sum = fmaf(load_element<kElement>(a.at(token, i), 0),
                   load_element<kElement>(b.at(token, i), 0), sum);
      }
    }
  }
  return sum;
}

// Replaces values by probabilities, and the gradients of probabilities by those of dot products
// without AttentionSizes::scale. `row` and `column` are a thread's.
template <bool kCapped, u32 kRows, u32 kColumns>
__device__ __forceinline__ void make_gradient(Accumulators<kRows, kColumns>& values,
                                              Accumulators<kRows, kColumns>& gradients,
                                              const ScoreForm<kCapped>& form, u32 row, u32 column,
                                              float subtracted, float dy_y) {
  const float value = values.at(row, column);
  const float p = power_of_two(fmaf(value, form.exponent(), -subtracted));
  values.at(row, column) = p;
  gradients.at(row, column) = p * (gradients.at(row, column) - dy_y) * form.slope(value);
}

// dq = scale * sum over keys of ds k, for each query. One CTA for each block of queries, head and
// sequence; the blocks that see the most keys come first.
template <HeadShape kHead>
__device__ __forceinline__ void backward_queries(const AttentionBackward& in, u64 statistics_data,
                                                 const HeadRows& dq) {
  constexpr Tiles kTiles = backward_queries_tiles(kHead);
  constexpr u32 kQueries = kTiles.rows();
  constexpr u32 kKeys = kTiles.columns;
  constexpr u32 kDepth = kHead.columns();
  constexpr u32 kWidth = kHead.value_columns();

  const AttentionSizes& sizes = in.sizes;
  const u32 heads = sizes.sequences() * sizes.heads;
  const u32 sequence = block_index() % heads / sizes.heads;
  const u32 head = block_index() % sizes.heads;
  const u32 first_query =
      (ceil_div(sizes.sequence, kQueries) - 1 - block_index() / heads) * kQueries;
  const TokenRows<kHead.dim> keys(in.k, sequence, sizes.sequence, head / sizes.group());
  const TokenRows<kHead.value_dim> values(in.v, sequence, sizes.sequence, head / sizes.group());
  const SharedRows<kDepth> shared_queries{launch_memory()};
  const SharedRows<kWidth> shared_dy{shared_queries.at(kQueries, 0)};
  const SharedRows<kDepth> shared_keys{shared_dy.at(kQueries, 0)};  // two blocks
  const SharedRows<kWidth> shared_values{shared_keys.at(2 * kKeys, 0)};
  // Of each query: its subtracted exponent and its sum of dy * y.
  const SharedAddress shared_statistics = shared_values.at(kKeys, 0);
  const StoredSpans spans{shared_statistics + kQueries * 8};

  const TokenRows<kHead.value_dim> y(in.y, sequence, sizes.sequence, head);
  const TokenRows<kHead.value_dim> dy(in.dy, sequence, sizes.sequence, head);
  const TokenSpan seen = sizes.keys_of_block(sequence, first_query, kQueries);
  const u32 end = ceil_div(seen.last, kKeys);
  u32 block = seen.first / kKeys;
  copy_rows<kQueries>(shared_queries, TokenRows<kHead.dim>(in.q, sequence, sizes.sequence, head),
                      first_query);
  copy_rows<kQueries>(shared_dy, dy, first_query);
  copy_rows<kKeys>(shared_keys, keys, block * kKeys);
  copy_rows<kKeys>(shared_values, values, block * kKeys);
  sm80::commit_copies();
  if (kHead.packed && thread_index() < kQueries)
    spans.store(thread_index(), sizes.keys_of(sequence, first_query + thread_index()));

  const Statistics statistics(statistics_data, sizes);
#pragma unroll
  for (u32 row = 0; row < kTiles.warp_rows / 8; ++row) {
    const u32 own = row_of<kTiles.warp_rows>(row);
    const u32 query = first_query + own;
    const bool exists = query < sizes.sequence;
    const u64 lse_row = static_cast<u64>(sequence) * sizes.sequence + query;
    const float subtracted = subtracted_exponent(
        exists ? load_element<Element::f32>(in.lse, lse_row * in.lse_stride + head) : -kInfinity);
    const float dy_y = sum_of_quad(exists ? share_of_dot<kHead.element>(dy, y, query) : 0.0f);
    if (own_lane() % 4 != 0) continue;
    store_shared(shared_statistics + own * 8, {__float_as_uint(subtracted), __float_as_uint(dy_y)});
    if (query >= statistics.padded) continue;
    const u64 index = statistics.at(sizes, sequence, head, query);
    store_element<Element::f32>(statistics.data, index, subtracted);
    store_element<Element::f32>(statistics.data, statistics.apart + index, dy_y);
  }

  const ScoreForm<kHead.capped> form(sizes);
  Accumulators<kTiles.warp_rows, kDepth> sums;
  sums.clear();
  for (u32 buffer = 0; block < end; ++block, buffer ^= 1) {
    const u32 first_key = block * kKeys;
    const SharedRows<kDepth> block_keys{shared_keys.at(buffer * kKeys, 0)};
    sm80::wait_for_copies<0>();
    synchronize_block();
    if (block + 1 < end) {
      copy_rows<kKeys>(SharedRows<kDepth>{shared_keys.at((buffer ^ 1) * kKeys, 0)}, keys,
                       first_key + kKeys);
    }
    sm80::commit_copies();
    Accumulators<kTiles.warp_rows, kKeys> scores;
    scores.clear();
    add_dot_products<kHead.element>(scores, shared_queries, block_keys);
    const bool sees_all = kHead.packed
                              ? spans.all_have(kQueries, first_key, kKeys)
                              : sizes.sees_all(sequence, first_query, kQueries, first_key, kKeys);
    Accumulators<kTiles.warp_rows, kKeys> gradients;
    gradients.clear();
    add_dot_products<kHead.element>(gradients, shared_dy, shared_values);
    synchronize_block();
    if (block + 1 < end) copy_rows<kKeys>(shared_values, values, first_key + kKeys);
    sm80::commit_copies();
    make_values(
        scores, form, !sees_all,
        [&](u32 own) {
          const u32 row = row_of<kTiles.warp_rows>(own);
          return kHead.packed ? spans.at(row) : sizes.keys_of(sequence, first_query + row);
        },
        first_key);
#pragma unroll
    for (u32 row = 0; row < scores.kOwnRows; ++row) {
      u32 own[2];
      load_shared(own, shared_statistics + row_of<kTiles.warp_rows>(row) * 8);
#pragma unroll
      for (u32 i = 0; i < scores.kOwnColumns; ++i) {
        make_gradient(scores, gradients, form, row, i, __uint_as_float(own[0]),
                      __uint_as_float(own[1]));
      }
    }
    add_product<kHead.element>(sums, rounded<kHead.element>(gradients), block_keys);
  }
  sm80::wait_for_copies<0>();  // of the first block, if no key is seen
  store_rows<kHead.element>(TokenRows<kHead.dim>(dq, sequence, sizes.sequence, head), first_query,
                            0, sums, [&](u32) { return sizes.scale; });
}

}  // namespace coda::device::attention
