// SPDX-License-Identifier: Apache-2.0
// Attention's forward on tensor cores: y and the log-sum-exp of each query's scores. A CTA has a
// block of queries of one head. It loops over the blocks of keys that some of its queries see, with
// an online softmax. A block of values is copied while scores are computed, and the next block of
// keys while the values are summed.
// Invariant: a query's result does not depend on other queries or on the order of CTAs.
#pragma once

#include "device/attention/head_rows.cuh"
#include "device/attention/scores.cuh"
#include "device/attention/softmax.cuh"
#include "device/ptx/launch_memory.cuh"

namespace coda::device::attention {

// Tensors: q [rows, heads * dim], k [rows, kv_heads * dim], v [rows, kv_heads * value_dim], y
// [rows, heads * value_dim], lse fp32 [rows, heads]. One CTA for each block of queries, head and
// sequence; the blocks that see the most keys come first.
template <HeadShape kHead>
__device__ __forceinline__ void forward(const AttentionSizes& sizes, const HeadRows& q,
                                        const HeadRows& k, const HeadRows& v, const HeadRows& y,
                                        u64 lse, u32 lse_stride) {
  constexpr Tiles kTiles = forward_tiles(kHead);
  constexpr u32 kQueries = kTiles.rows();
  constexpr u32 kKeys = kTiles.columns;
  constexpr u32 kDepth = kHead.columns();
  constexpr u32 kWidth = kHead.value_columns();

  const u32 heads = sizes.sequences() * sizes.heads;
  const u32 sequence = block_index() % heads / sizes.heads;
  const u32 head = block_index() % sizes.heads;
  const u32 first_query =
      (ceil_div(sizes.sequence, kQueries) - 1 - block_index() / heads) * kQueries;
  const TokenRows<kHead.dim> keys(k, sequence, sizes.sequence, head / sizes.group());
  const TokenRows<kHead.value_dim> values(v, sequence, sizes.sequence, head / sizes.group());
  const SharedRows<kDepth> shared_queries{launch_memory()};
  const SharedRows<kDepth> shared_keys{shared_queries.at(kQueries, 0)};
  const SharedRows<kWidth> shared_values{shared_keys.at(kKeys, 0)};
  const StoredSpans spans{shared_values.at(kKeys, 0)};

  const ScoreForm<kHead.capped> form(sizes);
  OnlineSoftmax<kTiles.warp_rows / 8> softmax(form.exponent());
  Accumulators<kTiles.warp_rows, kWidth> output;
  output.clear();
  const TokenSpan seen = sizes.keys_of_block(sequence, first_query, kQueries);
  const u32 end = ceil_div(seen.last, kKeys);
  u32 block = seen.first / kKeys;
  copy_rows<kQueries>(shared_queries, TokenRows<kHead.dim>(q, sequence, sizes.sequence, head),
                      first_query);
  copy_rows<kKeys>(shared_keys, keys, block * kKeys);
  sm80::commit_copies();
  if (kHead.packed && thread_index() < kQueries)
    spans.store(thread_index(), sizes.keys_of(sequence, first_query + thread_index()));
  for (; block < end; ++block) {
    const u32 first_key = block * kKeys;
    sm80::wait_for_copies<0>();
    synchronize_block();
    copy_rows<kKeys>(shared_values, values, first_key);
    sm80::commit_copies();
    Accumulators<kTiles.warp_rows, kKeys> scores;
    scores.clear();
    add_dot_products<kHead.element>(scores, shared_queries, shared_keys);
    sm80::wait_for_copies<0>();
    synchronize_block();
    if (block + 1 < end) copy_rows<kKeys>(shared_keys, keys, first_key + kKeys);
    sm80::commit_copies();
    const bool sees_all = kHead.packed
                              ? spans.all_have(kQueries, first_key, kKeys)
                              : sizes.sees_all(sequence, first_query, kQueries, first_key, kKeys);
    make_values(
        scores, form, !sees_all,
        [&](u32 own) {
          const u32 row = row_of<kTiles.warp_rows>(own);
          return kHead.packed ? spans.at(row) : sizes.keys_of(sequence, first_query + row);
        },
        first_key);
    softmax.raise(scores).apply(output);
    softmax.exponentiate(scores);
    add_product<kHead.element>(output, rounded<kHead.element>(scores), shared_values);
  }
  sm80::wait_for_copies<0>();  // of the first block, if no key is seen

  float inverse[kTiles.warp_rows / 8], log_sums[kTiles.warp_rows / 8];
  softmax.template finish<kHead.sinks>(inverse, log_sums, form.unit, sink_of<kHead>(sizes, head));
  store_log_sums(lse, lse_stride, sizes, sequence, head, first_query, log_sums);
  store_rows<kHead.element>(TokenRows<kHead.value_dim>(y, sequence, sizes.sequence, head),
                            first_query, 0, output, [&](u32 row) { return inverse[row]; });
}

}  // namespace coda::device::attention
