// SPDX-License-Identifier: Apache-2.0
// The second kernel of attention's backward on tensor cores: the gradients of keys and values. A
// CTA has a block of keys of one key-value head. It loops over the heads of the group, and for each
// head over the blocks of queries that see some of its keys. Scores are computed transposed, with a
// row for each key: then probabilities and their gradients are left operands of the sums over
// queries, and never leave registers. Invariant: sums are in the order of heads, then of queries,
// so results are bitwise repeatable.
#pragma once

#include "device/attention/backward_queries.cuh"

namespace coda::device::attention {

// Computes dk = scale * sum(ds * q) and dv = sum(p * dy) for each key. The sums run over the heads
// of the key's group and over the queries that see the key. The grid has one CTA for each
// combination of key block, key-value head, sequence and part of the columns (HeadShape::parts).
// Key blocks that the most queries see come first.
template <HeadShape kHead>
__device__ __forceinline__ void backward_keys(const AttentionBackward& in, u64 statistics_data,
                                              const HeadRows& dk, const HeadRows& dv) {
  constexpr Tiles kTiles = backward_keys_tiles(kHead);
  constexpr u32 kKeys = kTiles.rows();
  constexpr u32 kQueries = kTiles.columns;
  constexpr u32 kDepth = kHead.columns();
  constexpr u32 kWidth = kHead.value_columns();
  constexpr u32 kParts = kHead.parts();

  const AttentionSizes& sizes = in.sizes;
  const u32 part = block_index() % kParts;
  const u32 index = block_index() / kParts;
  const u32 heads = sizes.sequences() * sizes.kv_heads;
  const u32 sequence = index % heads / sizes.kv_heads;
  const u32 kv_head = index % sizes.kv_heads;
  const u32 first_key = index / heads * kKeys;
  const SharedRows<kDepth> shared_keys{launch_memory()};
  const SharedRows<kWidth> shared_values{shared_keys.at(kKeys, 0)};
  const SharedRows<kDepth> shared_queries{shared_values.at(kKeys, 0)};  // two blocks
  const SharedRows<kWidth> shared_dy{shared_queries.at(2 * kQueries, 0)};
  // For each of the two blocks of queries: their subtracted exponents, then the sums of dy * y.
  const SharedAddress shared_statistics = shared_dy.at(kQueries, 0);
  constexpr u32 kVectorBytes = kQueries * kFloatBytes;
  const StoredSpans spans{shared_statistics + 4 * kVectorBytes};

  const TokenSpan seen = sizes.queries_of_block(sequence, first_key, kKeys);
  const u32 first_query = seen.first / kQueries * kQueries;
  const u32 end_head = (kv_head + 1) * sizes.group();
  const auto copy_queries = [&](u32 head, u32 query, u32 buffer) {
    copy_rows<kQueries>(SharedRows<kDepth>{shared_queries.at(buffer * kQueries, 0)},
                        TokenRows<kHead.dim>(in.q, sequence, sizes.sequence, head), query);
    constexpr u32 kPieces = kVectorBytes / 16;
    if (thread_index() >= 2 * kPieces) return;
    const Statistics statistics(statistics_data, sizes);
    const u32 token = query + thread_index() % kPieces * 4;
    const u64 number =
        statistics.at(sizes, sequence, head, token) + thread_index() / kPieces * statistics.apart;
    const bool exists = token < statistics.padded;
    sm80::copy_async(shared_statistics + (buffer * 2 * kVectorBytes + thread_index() * 16),
                     statistics.data + (exists ? number * kFloatBytes : 0), exists ? 16 : 0);
  };
  const auto copy_dy = [&](u32 head, u32 query) {
    copy_rows<kQueries>(shared_dy,
                        TokenRows<kHead.value_dim>(in.dy, sequence, sizes.sequence, head), query);
  };
  copy_rows<kKeys>(shared_keys, TokenRows<kHead.dim>(in.k, sequence, sizes.sequence, kv_head),
                   first_key);
  copy_rows<kKeys>(shared_values,
                   TokenRows<kHead.value_dim>(in.v, sequence, sizes.sequence, kv_head), first_key);
  u32 head = kv_head * sizes.group();
  u32 query = first_query;
  copy_queries(head, query, 0);
  copy_dy(head, query);
  sm80::commit_copies();
  if (kHead.packed && thread_index() < kKeys)
    spans.store(thread_index(), sizes.queries_of(sequence, first_key + thread_index()));

  const ScoreForm<kHead.capped> form(sizes);
  Accumulators<kTiles.warp_rows, kDepth / kParts> key_sums;
  Accumulators<kTiles.warp_rows, kWidth / kParts> value_sums;
  key_sums.clear();
  value_sums.clear();
  for (u32 buffer = 0; head < end_head; buffer ^= 1) {
    const SharedRows<kDepth> block_queries{shared_queries.at(buffer * kQueries, 0)};
    const bool is_last = query + kQueries >= seen.last;
    const u32 next_head = head + (is_last ? 1 : 0);
    const u32 next_query = is_last ? first_query : query + kQueries;
    sm80::wait_for_copies<0>();
    synchronize_block();
    if (next_head < end_head) copy_queries(next_head, next_query, buffer ^ 1);
    sm80::commit_copies();
    Accumulators<kTiles.warp_rows, kQueries> scores;
    scores.clear();
    add_dot_products<kHead.element>(scores, shared_keys, block_queries);
    Accumulators<kTiles.warp_rows, kQueries> gradients;
    gradients.clear();
    add_dot_products<kHead.element>(gradients, shared_values, shared_dy);
    // Not StoredSpans::all_have(): it loads two numbers before it compares, and the kernel would
    // spill registers on sm_80.
    const bool sees_all =
        kHead.packed ? spans.at(kKeys - 1).first <= query && query + kQueries <= spans.at(0).last
                     : sizes.sees_all(sequence, query, kQueries, first_key, kKeys);
    make_values(
        scores, form, !sees_all,
        [&](u32 own) {
          const u32 row = row_of<kTiles.warp_rows>(own);
          return kHead.packed ? spans.at(row) : sizes.queries_of(sequence, first_key + row);
        },
        query);
    const SharedAddress block_statistics = shared_statistics + buffer * 2 * kVectorBytes;
#pragma unroll
    for (u32 i = 0; i < scores.kOwnColumns; i += 2) {
      u32 subtracted[2];
      u32 dy_y[2];
      const SharedAddress own = block_statistics + column_of(i) * kFloatBytes;
      load_shared(subtracted, own);
      load_shared(dy_y, own + kVectorBytes);
#pragma unroll
      for (u32 row = 0; row < scores.kOwnRows; ++row) {
#pragma unroll
        for (u32 j = 0; j < 2; ++j) {
          make_gradient(scores, gradients, form, row, i + j, __uint_as_float(subtracted[j]),
                        __uint_as_float(dy_y[j]));
        }
      }
    }
    add_product<kHead.element>(value_sums, rounded<kHead.element>(scores), shared_dy,
                               part * (kWidth / kParts));
    synchronize_block();
    if (next_head < end_head) copy_dy(next_head, next_query);
    sm80::commit_copies();
    add_product<kHead.element>(key_sums, rounded<kHead.element>(gradients), block_queries,
                               part * (kDepth / kParts));
    head = next_head;
    query = next_query;
  }
  store_rows<kHead.element>(TokenRows<kHead.dim>(dk, sequence, sizes.sequence, kv_head), first_key,
                            part * (kDepth / kParts), key_sums, [&](u32) { return sizes.scale; });
  store_rows<kHead.element>(TokenRows<kHead.value_dim>(dv, sequence, sizes.sequence, kv_head),
                            first_key, part * (kWidth / kParts), value_sums,
                            [](u32) { return 1.0f; });
}

}  // namespace coda::device::attention
