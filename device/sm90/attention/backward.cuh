// SPDX-License-Identifier: Apache-2.0
// Attention's backward for Hopper in one pass: dk and dv of a block of keys, and its share of dq of
// all queries that see a key of the block. A producer loads keys, values, and blocks of queries and
// dy by TMA; each of two consumer warpgroups has 64 keys and accumulates their dk and dv in
// registers; a writer adds the shares of dq to fp32 sums in memory. The consumers of the CTA that
// adds the last share round the sums to dq. Scores are computed transposed, a row for each key, so
// that p and ds are left operands of dv and dk as they lie in registers. Only dq needs ds in shared
// memory, of both consumers. Invariant: shares are added to dq in the order of the blocks of keys:
// a CTA follows the one that has the block before. So results have the same bits for any number of
// CTAs that run together.
#pragma once

#include "device/ptx/launch_memory.cuh"
#include "device/ptx/named_barrier.cuh"
#include "device/sm90/attention/backward_rows.cuh"
#include "device/sm90/attention/operands.cuh"
#include "device/sm90/pipeline.cuh"
#include "device/sm90/ptx/registers.cuh"

namespace coda::device::attention::sm90 {

// The work of a CTA: the keys of one block of one key-value head, and the range of blocks of
// queries that contain a query whose mask admits one of these keys.
template <HeadShape kHead, BackwardTiles kTiles>
struct KeyTile {
  u32 sequence, kv_head, block;
  u32 begin, end;  // the range of blocks of queries

  // Tiles in the order in which CTAs begin them: of `together` heads the first blocks first, which
  // have the most work if the mask is causal. A tile waits for the block before, which began
  // earlier.
  __device__ __forceinline__ KeyTile(const AttentionSizes& sizes, u32 ticket, u32 together) {
    const u32 key_blocks = ceil_div(sizes.sequence, kBackwardKeys);
    const u32 section = ticket / (together * key_blocks);
    const u32 in_section = ticket - section * together * key_blocks;
    const u32 first_head = section * together;
    const u32 heads = smaller(together, sizes.sequences() * sizes.kv_heads - first_head);
    const u32 head = first_head + in_section % heads;
    sequence = head / sizes.kv_heads;
    kv_head = head % sizes.kv_heads;
    block = in_section / heads;
    const TokenSpan seen = sizes.queries_of_block(sequence, first_key(), kBackwardKeys);
    begin = seen.first / kTiles.queries;
    end = larger(begin, ceil_div(seen.last, kTiles.queries));
  }

  __device__ __forceinline__ u32 first_key() const { return block * kBackwardKeys; }

  // Whether the tile has the first, and the last, of the keys that a block of queries sees.
  __device__ __forceinline__ bool is_first_of(const AttentionSizes& sizes, u32 query) const {
    return sizes.keys_of_block(sequence, query, kTiles.queries).first / kBackwardKeys == block;
  }
  __device__ __forceinline__ bool is_last_of(const AttentionSizes& sizes, u32 query) const {
    return (sizes.keys_of_block(sequence, query, kTiles.queries).last - 1) / kBackwardKeys == block;
  }

  // Calls visit(step, block of queries, head) in order, from the last block of queries to the
  // first: CTAs of a head that begin together read the same queries about the same time.
  template <class Visit>
  __device__ __forceinline__ void walk(const AttentionSizes& sizes, Visit visit) const {
    const u32 group = sizes.group();
    const u32 steps = (end - begin) * group;
    u32 block = end - 1;
    u32 member = 0;
    for (u32 step = 0; step < steps; ++step) {
      visit(step, block, kv_head * group + member);
      if (++member != group) continue;
      member = 0;
      --block;
    }
  }
};

template <HeadShape kHead, BackwardTiles kTiles>
struct BackwardShared {
  static constexpr BackwardLayout kLayout = backward_layout(kHead, kTiles);
  SharedAddress start;

  __device__ __forceinline__ SharedAddress keys() const { return start; }
  __device__ __forceinline__ SharedAddress values() const { return start + kLayout.values; }
  __device__ __forceinline__ SharedAddress queries(u32 stage) const {
    return start + (kLayout.queries + stage * block_bytes(kTiles.queries, kHead.dim));
  }
  __device__ __forceinline__ SharedAddress dy(u32 stage) const {
    return start + (kLayout.dy + stage * block_bytes(kTiles.queries, kHead.value_dim));
  }
  // ds of both consumers, [keys, queries]. Two, which steps use alternately.
  __device__ __forceinline__ SharedAddress gradients(u32 buffer) const {
    return start + (kLayout.gradients + buffer * block_bytes(kBackwardKeys, kTiles.queries));
  }
  __device__ __forceinline__ SharedAddress query_sums(u32 consumer) const {
    return start + (kLayout.query_sums + consumer * kQuerySumsBytes);
  }
  __device__ __forceinline__ SharedAddress subtracted(u32 stage) const {
    return start + (kLayout.subtracted + stage * kTiles.queries * kFloatBytes);
  }
  __device__ __forceinline__ SharedAddress dots(u32 stage) const {
    return start + (kLayout.dots + stage * kTiles.queries * kFloatBytes);
  }
  __device__ __forceinline__ SharedAddress spans() const { return start + kLayout.spans; }
  __device__ __forceinline__ SharedAddress ticket() const { return start + kLayout.ticket; }

  __device__ __forceinline__ SharedAddress barrier(u32 index) const {
    return start + (kLayout.barriers + index * kBarrierBytes);
  }
  __device__ __forceinline__ SharedAddress keys_full() const { return barrier(0); }
  __device__ __forceinline__ SharedAddress queries_full(u32 stage) const {
    return barrier(1 + stage);
  }
  __device__ __forceinline__ SharedAddress queries_empty(u32 stage) const {
    return barrier(1 + kTiles.stages + stage);
  }
  __device__ __forceinline__ SharedAddress dy_full(u32 stage) const {
    return barrier(1 + 2 * kTiles.stages + stage);
  }
  __device__ __forceinline__ SharedAddress dy_empty(u32 stage) const {
    return barrier(1 + 3 * kTiles.stages + stage);
  }
  __device__ __forceinline__ SharedAddress sums_full(u32 consumer) const {
    return barrier(1 + 4 * kTiles.stages + consumer);
  }
  __device__ __forceinline__ SharedAddress sums_empty(u32 consumer) const {
    return barrier(1 + 4 * kTiles.stages + kBackwardConsumers + consumer);
  }

  __device__ __forceinline__ SharedAddress all_added() const {
    return barrier(1 + 4 * kTiles.stages + 2 * kBackwardConsumers);
  }

  __device__ __forceinline__ void init_barriers() const {
    // Every thread arrives for itself. racecheck does not see that threads of a warp have read
    // before one of them arrives.
    constexpr u32 kConsumerThreads = kBackwardConsumers * kWarpgroupSize;
    barrier_init(keys_full(), 1);
    for (u32 stage = 0; stage < kTiles.stages; ++stage) {
      barrier_init(queries_full(stage), 1);
      barrier_init(queries_empty(stage), kConsumerThreads);
      barrier_init(dy_full(stage), 1);
      barrier_init(dy_empty(stage), kConsumerThreads);
    }
    for (u32 consumer = 0; consumer < kBackwardConsumers; ++consumer) {
      barrier_init(sums_full(consumer), kWarpgroupSize);
      barrier_init(sums_empty(consumer), 1);
    }
    barrier_init(all_added(), 1);
    fence_barrier_init();
  }
};

// TMA descriptors. A box is one panel (64 columns) of a block.
struct BackwardMaps {
  const TensorMap *q, *k, *v, *dy;
};

// Run by one thread.
template <HeadShape kHead, BackwardTiles kTiles>
__device__ __forceinline__ void load_operands(const BackwardShared<kHead, kTiles>& shared,
                                              const KeyTile<kHead, kTiles>& tile,
                                              const AttentionSizes& sizes, const BackwardMaps& maps,
                                              const RowSums& rows) {
  PipelineState<kTiles.stages> stage;
  constexpr u32 kVectorBytes = kTiles.queries * kFloatBytes;
  barrier_arrive_expect(shared.keys_full(), block_bytes(kBackwardKeys, kHead.dim) +
                                                block_bytes(kBackwardKeys, kHead.value_dim));
  load_panels<kBackwardKeys, kHead.dim>(shared.keys(), maps.k, tile.sequence, tile.kv_head,
                                        tile.first_key(), shared.keys_full());
  load_panels<kBackwardKeys, kHead.value_dim>(shared.values(), maps.v, tile.sequence, tile.kv_head,
                                              tile.first_key(), shared.keys_full());
  tile.walk(sizes, [&](u32, u32 block, u32 head) {
    const u32 query = block * kTiles.queries;
    const u64 numbers = wide_product(rows.at(sizes, tile.sequence, head, query), kFloatBytes);
    barrier_wait(shared.queries_empty(stage.stage), stage.phase ^ 1);
    const SharedAddress queries_full = shared.queries_full(stage.stage);
    barrier_arrive_expect(queries_full, block_bytes(kTiles.queries, kHead.dim) + kVectorBytes);
    load_panels<kTiles.queries, kHead.dim>(shared.queries(stage.stage), maps.q, tile.sequence, head,
                                           query, queries_full);
    bulk_load(shared.subtracted(stage.stage), rows.subtracted + numbers, kVectorBytes,
              queries_full);
    barrier_wait(shared.dy_empty(stage.stage), stage.phase ^ 1);
    const SharedAddress dy_full = shared.dy_full(stage.stage);
    barrier_arrive_expect(dy_full, block_bytes(kTiles.queries, kHead.value_dim) + kVectorBytes);
    load_panels<kTiles.queries, kHead.value_dim>(shared.dy(stage.stage), maps.dy, tile.sequence,
                                                 head, query, dy_full);
    bulk_load(shared.dots(stage.stage), rows.dots + numbers, kVectorBytes, dy_full);
    stage.advance();
  });
}

// Adds the shares of dq, each after that of the block of keys before. Run by one thread. `progress`
// has a number for each block of keys: how many steps are done, of as many as a block has that all
// queries see.
template <HeadShape kHead, BackwardTiles kTiles>
__device__ __forceinline__ void add_query_sums(const BackwardShared<kHead, kTiles>& shared,
                                               const KeyTile<kHead, kTiles>& tile,
                                               const AttentionSizes& sizes, u64 progress, u64 sums,
                                               const RowSums& rows) {
  const u32 key_blocks = ceil_div(sizes.sequence, kBackwardKeys);
  const u64 head_blocks =
      (static_cast<u64>(tile.sequence) * sizes.kv_heads + tile.kv_head) * key_blocks;
  const u64 own = progress + (head_blocks + tile.block) * sizeof(u32);
  const u32 skipped =
      (ceil_div(sizes.sequence, kTiles.queries) - tile.end) * sizes.group();  // steps
  u32 before = tile.block == 0 ? ~0u : 0;  // the progress of the block before
  publish_word(own, skipped);
  tile.walk(sizes, [&](u32 step, u32 block, u32 head) {
    const u32 query = block * kTiles.queries;
    const u64 to = sums + wide_product(rows.at(sizes, tile.sequence, head, query),
                                       output_columns(kHead) * kFloatBytes);
    // With documents, sums begin as 0, because the first keys may be of tokens in no document.
    const bool is_first = !kHead.packed && tile.is_first_of(sizes, query);
    while (before <= skipped + step) before = published_word(own - sizeof(u32));
#pragma unroll
    for (u32 consumer = 0; consumer < kBackwardConsumers; ++consumer) {
      barrier_wait(shared.sums_full(consumer), step % 2);
      if (is_first) {
        bulk_store(to + consumer * kQuerySumsBytes, shared.query_sums(consumer), kQuerySumsBytes);
      } else {
        bulk_add(to + consumer * kQuerySumsBytes, shared.query_sums(consumer), kQuerySumsBytes);
      }
      store_commit();
    }
#pragma unroll
    for (u32 consumer = 0; consumer < kBackwardConsumers; ++consumer) {
      if (consumer == 0) store_wait_read<kBackwardConsumers - 1>();
      if (consumer != 0) store_wait_read<0>();
      barrier_arrive(shared.sums_empty(consumer));
    }
    store_wait();
    publish_word(own, skipped + step + 1);
  });
  publish_word(own, ~0u);
  barrier_arrive(shared.all_added());
}

// dq = scale * sums, for the blocks of queries whose last keys are the tile's; they are the first
// blocks that see the tile. Run by the consumers, of which each has half of the columns or queries.
template <HeadShape kHead, BackwardTiles kTiles>
__device__ __forceinline__ void round_query_sums(const KeyTile<kHead, kTiles>& tile, u32 consumer,
                                                 const AttentionSizes& sizes, u64 sums,
                                                 const RowSums& rows, const HeadRows& dq) {
  u32 end = tile.begin;
  while (end < tile.end && tile.is_last_of(sizes, end * kTiles.queries)) ++end;
  const u32 group = sizes.group();
  const u32 count = (end - tile.begin) * group;
  const u64 own = sums + consumer * kQuerySumsBytes + thread_index() % kWarpgroupSize * 16;
  const auto query_of = [&](u32 i) { return (tile.begin + i / group) * kTiles.queries; };
  const auto head_of = [&](u32 i) { return tile.kv_head * group + i % group; };
  Accumulators<16, 64> buffers[2];  // one is loaded while the other is stored
  const auto load = [&](u32 i, Accumulators<16, 64>& to) {
    if (i >= count) return;
    const u64 from = own + wide_product(rows.at(sizes, tile.sequence, head_of(i), query_of(i)),
                                        output_columns(kHead) * kFloatBytes);
#pragma unroll
    for (u32 j = 0; j < 8; ++j) {
      u32 words[4];
      load_piece<Access::in_place>(words, from + j * kSumsPitch);
#pragma unroll
      for (u32 k = 0; k < 4; ++k) to.sums[0][j][k] = __uint_as_float(words[k]);
    }
  };
  const auto store = [&](u32 i, const Accumulators<16, 64>& from) {
    if (i >= count) return;
    // row_of() counts the rows of both consumers.
    const u32 panel = kTiles.queries == kWgmmaM ? consumer : 0;
    store_pieces<kHead.element>(TokenRows<kHead.dim>(dq, tile.sequence, sizes.sequence, head_of(i)),
                                query_of(i) - panel * kWgmmaM, panel * kBlockK, from,
                                [&](u32) { return sizes.scale; });
  };
  load(0, buffers[0]);
#pragma unroll 1
  for (u32 i = 0; i < count; i += 2) {
    load(i + 1, buffers[1]);
    store(i, buffers[0]);
    load(i + 2, buffers[0]);
    store(i + 1, buffers[1]);
  }
}

// Calls visit(row, column, number) for the elements of a thread. Each column has a number in shared
// memory.
template <class Block, class Visit>
__device__ __forceinline__ void with_numbers(SharedAddress numbers, Visit visit) {
#pragma unroll
  for (u32 i = 0; i < Block::kOwnColumns; i += 2) {
    u32 pair[2];
    load_shared(pair, numbers + column_of(i) * kFloatBytes);
#pragma unroll
    for (u32 row = 0; row < Block::kOwnRows; ++row) {
#pragma unroll
      for (u32 j = 0; j < 2; ++j) visit(row, i + j, __uint_as_float(pair[j]));
    }
  }
}

// The loop of a consumer warpgroup. Each step issues five matrix products, which the tensor cores
// execute in this order: scores, dy · valuesᵀ, dv, dq, dk. The warpgroup computes exponentials
// during dy · valuesᵀ, and ds during dv. It issues the scores of the next step during dk.
template <HeadShape kHead, BackwardTiles kTiles>
__device__ __forceinline__ void compute_gradients(const BackwardShared<kHead, kTiles>& shared,
                                                  const KeyTile<kHead, kTiles>& tile, u32 consumer,
                                                  const AttentionSizes& sizes, const HeadRows& dk,
                                                  const HeadRows& dv) {
  static_assert(kTiles.stages == 2);
  constexpr Element kElement = kHead.element;
  constexpr u32 kQueries = kTiles.queries;
  using Block = Accumulators<16, kQueries>;
  // Probabilities and gradients are rounded in parts, so that few of both are in registers.
  using Part = Accumulators<16, kPartColumns>;
  using Fragments = LeftFragments<16, kPartColumns>;
  constexpr u32 kParts = kQueries / kPartColumns;
  constexpr u32 kPartRows = kPartColumns * kSwizzleBytes >> 4;
  const ScoreForm<kHead.capped> form(sizes);
  const u32 own_key = tile.first_key() + consumer * kWgmmaM;
  const StoredSpans spans{shared.spans()};
  const StoredSpans own_spans{shared.spans() + consumer * kWgmmaM * span_bytes(kHead)};
  const auto uniform = [](u32 x) { return __shfl_sync(~0u, x, 0); };
  const u32 own_rows = consumer * kWgmmaM * kSwizzleBytes >> 4;
  const u32 keys_start = uniform(rows_descriptor(shared.keys()) + own_rows);
  const u32 values_start = uniform(rows_descriptor(shared.values()) + own_rows);
  const u32 queries_start = uniform(rows_descriptor(shared.queries(0)));
  const u32 dy_start = uniform(rows_descriptor(shared.dy(0)));
  const u32 queries_columns = uniform(values_descriptor<kQueries>(shared.queries(0)));
  const u32 dy_columns = uniform(values_descriptor<kQueries>(shared.dy(0)));
  constexpr u32 kQueriesStage = block_bytes(kQueries, kHead.dim) >> 4;
  constexpr u32 kDyStage = block_bytes(kQueries, kHead.value_dim) >> 4;
  // dq: with one panel of queries, a consumer has a panel of columns of the keys.
  constexpr u32 kPanel = panel_bytes(kBackwardKeys) >> 4;
  const u32 key_panel = uniform(values_descriptor<kBackwardKeys>(shared.keys()) +
                                (kQueries == 64 ? consumer * kPanel : 0));
  const u32 gradients_panel = uniform(values_descriptor<kBackwardKeys>(shared.gradients(0)) +
                                      (kQueries == 64 ? 0 : consumer * kPanel));
  constexpr u32 kGradientsBuffer = block_bytes(kBackwardKeys, kQueries) >> 4;

  Accumulators<16, output_columns(kHead)> key_sums;
  Accumulators<16, output_columns(kHead)> value_sums;
  key_sums.clear();
  value_sums.clear();
  if (kHead.packed) {
    const u32 row = thread_index() % kWarpgroupSize;
    if (row < kWgmmaM) own_spans.store(row, sizes.queries_of(tile.sequence, own_key + row));
    named_barrier_sync(static_cast<u32>(NamedBarrier::warpgroup) + consumer, kWarpgroupSize);
  }

  barrier_wait(shared.keys_full(), 0);
  Fragments p[kParts], ds[kParts];
  const auto keep = [](Fragments(&x)[kParts]) {
#pragma unroll
    for (Fragments& of_part : x) pin_registers(of_part.words[0]);
  };
  tile.walk(sizes, [&](u32 step, u32 block, u32) {
    const u32 stage = step % 2, phase = step / 2 % 2;
    Block scores, gradients;
    barrier_wait(shared.queries_full(stage), phase);
    wgmma_fence();
    issue_dot_products<kElement, kHead.dim, kBackwardKeys>(scores, keys_start,
                                                           queries_start + stage * kQueriesStage);
    wgmma_commit();
    barrier_wait(shared.dy_full(stage), phase);
    wgmma_wait<1>();
    pin_registers(sums_of(key_sums));
    keep(ds);
    if (step != 0) barrier_arrive(shared.queries_empty(stage ^ 1));
    wgmma_fence();
    issue_dot_products<kElement, kHead.value_dim, kBackwardKeys>(gradients, values_start,
                                                                 dy_start + stage * kDyStage);
    wgmma_commit();
    wgmma_wait<1>();
    pin_registers(sums_of(scores));
    const u32 query = block * kQueries;
    const bool sees_all = kHead.packed
                              ? own_spans.all_have(kWgmmaM, query, kQueries)
                              : sizes.sees_all(tile.sequence, query, kQueries, own_key, kWgmmaM);
    make_values(
        scores, form, !sees_all,
        [&](u32 own) {
          const u32 row = row_of<16>(own);
          const u32 key = tile.first_key() + row;
          if (key >= sizes.sequence) return TokenSpan{0, 0};
          return kHead.packed ? spans.at(row) : sizes.queries_of(tile.sequence, key);
        },
        query);
    if constexpr (kHead.capped) {
      // Slopes need the values that probabilities replace.
      wgmma_wait<0>();
      pin_registers(sums_of(gradients));
      with_numbers<Block>(shared.dots(stage), [&](u32 row, u32 i, float dot) {
        float& x = gradients.at(row, i);
        x = (x - dot) * form.slope(scores.at(row, i));
      });
    }
    with_numbers<Block>(shared.subtracted(stage), [&](u32 row, u32 i, float subtracted) {
      float& x = scores.at(row, i);
      x = power_of_two(fmaf(x, form.exponent(), -subtracted));
    });
    const SharedAddress own_row = own_matrix_row(shared.gradients(stage), consumer * kWgmmaM);
#pragma unroll
    for (u32 part = 0; part < kParts; ++part) {
      Part& own_scores = part_of(scores, part);
      Part& own_gradients = part_of(gradients, part);
      p[part] = rounded<kElement>(own_scores);
      wgmma_fence();
      issue_product<kElement>(value_sums, p[part],
                              dy_columns + stage * kDyStage + part * kPartRows);
      wgmma_commit();
      if (!kHead.capped && part == 0) {
        wgmma_wait<1>();
        pin_registers(sums_of(gradients));
      }
      with_numbers<Part>(shared.dots(stage) + part * kPartColumns * kFloatBytes,
                         [&](u32 row, u32 i, float dot) {
                           float& x = own_gradients.at(row, i);
                           x = own_scores.at(row, i) * (kHead.capped ? x : x - dot);
                         });
      ds[part] = rounded<kElement>(own_gradients);
      store_fragments<kBackwardKeys>(own_row, part * kPartColumns, ds[part]);
    }
    fence_async_proxy();
    named_barrier_sync(static_cast<u32>(NamedBarrier::mainloop_order),
                       kBackwardConsumers * kWarpgroupSize);
    Accumulators<16, 64> query_sums;
    wgmma_fence();
    issue_panel_product<kElement, kBackwardKeys>(
        query_sums, gradients_panel + stage * kGradientsBuffer, key_panel);
    wgmma_commit();
    wgmma_fence();
#pragma unroll
    for (u32 part = 0; part < kParts; ++part)
      issue_product<kElement>(key_sums, ds[part],
                              queries_columns + stage * kQueriesStage + part * kPartRows);
    wgmma_commit();
    wgmma_wait<1>();
    pin_registers(sums_of(value_sums));
    keep(p);
    pin_registers(sums_of(query_sums));
    barrier_arrive(shared.dy_empty(stage));
    barrier_wait(shared.sums_empty(consumer), (step + 1) % 2);
    const SharedAddress own_sums =
        shared.query_sums(consumer) + thread_index_anew() % kWarpgroupSize * 16;
#pragma unroll
    for (u32 i = 0; i < 8; ++i)
      store_shared_piece(own_sums + i * kSumsPitch, query_sums.sums[0][i]);
    fence_async_proxy();
    barrier_arrive(shared.sums_full(consumer));
  });
  wgmma_wait<0>();
  pin_registers(sums_of(key_sums));
  keep(ds);
  store_pieces<kElement>(TokenRows<kHead.dim>(dk, tile.sequence, sizes.sequence, tile.kv_head),
                         tile.first_key(), 0, key_sums, [&](u32) { return sizes.scale; });
  store_pieces<kElement>(
      TokenRows<kHead.value_dim>(dv, tile.sequence, sizes.sequence, tile.kv_head), tile.first_key(),
      0, value_sums, [](u32) { return 1.0f; });
}

// dq, dk and dv, after begin_backward() (backward_rows.cuh) with the same scratch memory. One CTA
// for each key-value head, sequence and block of keys. `together`: of so many heads CTAs run at a
// time.
template <HeadShape kHead, BackwardTiles kTiles = backward_tiles(kHead)>
__device__ __forceinline__ void backward(const AttentionSizes& sizes, const BackwardMaps& maps,
                                         u64 scratch_data, u32 together, const HeadRows& dq,
                                         const HeadRows& dk, const HeadRows& dv) {
  const BackwardShared<kHead, kTiles> shared{launch_memory()};
  const BackwardScratch scratch = scratch_of<kHead>(sizes);
  if (thread_index() == 0) {
    shared.init_barriers();
    store_shared(shared.ticket(), __uint_as_float(take_ticket(scratch_data)));
  }
  synchronize_block();
  const KeyTile<kHead, kTiles> tile(sizes, load_word(shared.ticket()), together);
  const RowSums rows(scratch_data, scratch, sizes);
  const u64 sums = scratch_data + scratch.query_sums;
  // Consumers are the first warpgroups, so that row_of() gives the row of the tile.
  const u32 warpgroup = __shfl_sync(~0u, thread_index() / kWarpgroupSize, 0);
  if (warpgroup == kBackwardConsumers) {
    release_registers<kTiles.producer_registers>();
    const u32 thread = thread_index() % kWarpgroupSize;
    if (thread == 0) load_operands(shared, tile, sizes, maps, rows);
    if (thread == kWarpSize)
      add_query_sums(shared, tile, sizes, scratch_data + scratch.progress, sums, rows);
  } else {
    claim_registers<kTiles.consumer_registers>();
    compute_gradients(shared, tile, warpgroup, sizes, dk, dv);
    barrier_wait(shared.all_added(), 0);
    round_query_sums(tile, warpgroup, sizes, sums, rows, dq);
  }
}

}  // namespace coda::device::attention::sm90
