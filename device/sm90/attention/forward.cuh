// SPDX-License-Identifier: Apache-2.0
// Attention's forward for Hopper: what device/attention/forward.cuh computes, by wgmma in
// persistent CTAs. A producer loads queries, keys and values by TMA; each consumer warpgroup
// has 64 of the tile's queries. A consumer issues the scores of the next block before the product
// of this block's probabilities with its values. So the softmax of the next block runs under that
// product, and under the products of the other consumers, which take turns at the tensor cores.
// Invariant: all roles visit the same tiles and the same blocks of keys in the same order. A
// query's result depends neither on other queries nor on the number of CTAs.
#pragma once

#include "device/attention/scores.cuh"
#include "device/attention/softmax.cuh"
#include "device/ptx/launch_memory.cuh"
#include "device/ptx/named_barrier.cuh"
#include "device/sm90/attention/operands.cuh"
#include "device/sm90/pipeline.cuh"
#include "device/sm90/ptx/registers.cuh"

namespace coda::device::attention::sm90 {

// The bytes of keys and values that tiles use at about the same time, so that they stay in L2.
inline constexpr u32 kBytesInL2 = 24 << 20;

// A block of queries of one head, and the blocks of keys that some of them see.
template <HeadShape kHead, ForwardTiles kTiles>
struct Tile {
  u32 sequence, head, first_query;
  u32 block, end;  // of keys

  // Tiles in their order: heads in sections whose keys and values fit into L2, in a section the
  // blocks of queries that see the most keys first.
  __device__ __forceinline__ Tile(const AttentionSizes& sizes, u32 index) {
    const u32 heads = sizes.sequences() * sizes.heads;
    const u32 blocks = ceil_div(sizes.sequence, kTiles.queries());
    const u32 kilobytes =  // of the keys and values of a head
        ceil_div(sizes.sequence, 1024 / kElementBytes) * (kHead.dim + kHead.value_dim);
    const u32 most = larger(1, (kBytesInL2 >> 10) / kilobytes) * sizes.group();  // heads
    const u32 section = index / (most * blocks);
    const u32 in_section = index - section * most * blocks;
    const u32 section_heads = smaller(most, heads - section * most);
    const u32 of = section * most + in_section % section_heads;
    sequence = of / sizes.heads;
    head = of % sizes.heads;
    first_query = (blocks - 1 - in_section / section_heads) * kTiles.queries();
    const TokenSpan seen = sizes.keys_of_block(sequence, first_query, kTiles.queries());
    block = seen.first / kTiles.keys;
    end = ceil_div(seen.last, kTiles.keys);
  }
};

// Calls visit(tile) for each tile of this CTA. Every other round of tiles is dealt in reverse, so
// that no CTA gets the longest of all rounds.
template <HeadShape kHead, ForwardTiles kTiles, class Visit>
__device__ __forceinline__ void walk_tiles(const AttentionSizes& sizes, Visit visit) {
  const u32 tiles = ceil_div(sizes.sequence, kTiles.queries()) * sizes.sequences() * sizes.heads;
  bool reverse = false;
  for (u32 first = 0; first < tiles; first += gridDim.x) {
    const u32 index = first + (reverse ? gridDim.x - 1 - block_index() : block_index());
    if (index < tiles) visit(Tile<kHead, kTiles>(sizes, index));
    reverse = !reverse;
  }
}

// The shared memory of a CTA. Each stage of keys and of values, and the queries, have a barrier
// that says that they are full, and one that they are empty.
template <HeadShape kHead, ForwardTiles kTiles>
struct Shared {
  static constexpr ForwardLayout kLayout = forward_layout(kHead, kTiles);
  SharedAddress start;

  __device__ __forceinline__ SharedAddress queries() const { return start; }
  __device__ __forceinline__ SharedAddress keys(u32 stage) const {
    return start + (kLayout.keys + stage * block_bytes(kTiles.keys, kHead.dim));
  }
  __device__ __forceinline__ SharedAddress values(u32 stage) const {
    return start + (kLayout.values + stage * block_bytes(kTiles.keys, output_columns(kHead)));
  }
  __device__ __forceinline__ SharedAddress barrier(u32 index) const {
    return start + (kLayout.barriers + index * kBarrierBytes);
  }
  __device__ __forceinline__ SharedAddress queries_full() const { return barrier(0); }
  __device__ __forceinline__ SharedAddress queries_empty() const { return barrier(1); }
  __device__ __forceinline__ SharedAddress keys_full(u32 stage) const { return barrier(2 + stage); }
  __device__ __forceinline__ SharedAddress keys_empty(u32 stage) const {
    return barrier(2 + kTiles.stages + stage);
  }
  __device__ __forceinline__ SharedAddress values_full(u32 stage) const {
    return barrier(2 + 2 * kTiles.stages + stage);
  }
  __device__ __forceinline__ SharedAddress values_empty(u32 stage) const {
    return barrier(2 + 3 * kTiles.stages + stage);
  }

  __device__ __forceinline__ void init_barriers() const {
    constexpr u32 kConsumerWarps = kTiles.consumers * kWarpgroupSize / kWarpSize;
    barrier_init(queries_full(), 1);
    barrier_init(queries_empty(), kConsumerWarps);
    for (u32 stage = 0; stage < kTiles.stages; ++stage) {
      barrier_init(keys_full(stage), 1);
      barrier_init(keys_empty(stage), kConsumerWarps);
      barrier_init(values_full(stage), 1);
      barrier_init(values_empty(stage), kConsumerWarps);
    }
    fence_barrier_init();
  }
};

// The consumers' turns at the tensor cores, in a ring.
template <ForwardTiles kTiles>
struct Turns {
  static constexpr u32 kFirst = static_cast<u32>(NamedBarrier::mainloop_order);
  static constexpr u32 kParticipants = 2 * kWarpgroupSize;
  u32 consumer;

  __device__ __forceinline__ void open() const {
    if (kTiles.takes_turns && consumer == kTiles.consumers - 1)
      named_barrier_arrive(kFirst, kParticipants);
  }
  __device__ __forceinline__ void enter() const {
    if (kTiles.takes_turns) named_barrier_sync(kFirst + consumer, kParticipants);
  }
  __device__ __forceinline__ void leave() const {
    if (kTiles.takes_turns)
      named_barrier_arrive(kFirst + (consumer + 1 == kTiles.consumers ? 0 : consumer + 1),
                           kParticipants);
  }
};

// TMA descriptors. A box of q is one panel (64 columns) of a tile's queries; a box of k or v is one
// panel of a block of keys.
struct ForwardMaps {
  const TensorMap *q, *k, *v;
};

// Run by one thread.
template <HeadShape kHead, ForwardTiles kTiles>
__device__ __forceinline__ void produce(const Shared<kHead, kTiles>& shared,
                                        const AttentionSizes& sizes, const ForwardMaps& maps) {
  PipelineState<1> queries;
  PipelineState<kTiles.stages> keys, values;
  walk_tiles<kHead, kTiles>(sizes, [&](const Tile<kHead, kTiles>& tile) {
    const u32 kv_head = tile.head / sizes.group();
    const auto load_values = [&](u32 block) {
      barrier_wait(shared.values_empty(values.stage), values.phase ^ 1);
      load_block<kTiles.keys, kHead.value_dim>(shared.values(values.stage), maps.v, tile.sequence,
                                               kv_head, block * kTiles.keys,
                                               shared.values_full(values.stage));
      values.advance();
    };
    if (tile.block >= tile.end) return;
    barrier_wait(shared.queries_empty(), queries.phase ^ 1);
    load_block<kTiles.queries(), kHead.dim>(shared.queries(), maps.q, tile.sequence, tile.head,
                                            tile.first_query, shared.queries_full());
    queries.advance();
    // In the order in which consumers use them.
    for (u32 block = tile.block; block < tile.end; ++block) {
      barrier_wait(shared.keys_empty(keys.stage), keys.phase ^ 1);
      load_block<kTiles.keys, kHead.dim>(shared.keys(keys.stage), maps.k, tile.sequence, kv_head,
                                         block * kTiles.keys, shared.keys_full(keys.stage));
      keys.advance();
      if (block != tile.block) load_values(block - 1);
    }
    load_values(tile.end - 1);
  });
}

template <HeadShape kHead, ForwardTiles kTiles>
__device__ __forceinline__ void consume(const Shared<kHead, kTiles>& shared, u32 consumer,
                                        const AttentionSizes& sizes, const HeadRows& y, u64 lse,
                                        u32 lse_stride) {
  constexpr Element kElement = kHead.element;
  constexpr u32 kKeys = kTiles.keys;
  using Probabilities = LeftFragments<16, kKeys>;
  const ScoreForm<kHead.capped> form(sizes);
  const Turns<kTiles> turns{consumer};
  const StoredSpans spans{shared.start + Shared<kHead, kTiles>::kLayout.spans};  // of the tile
  const StoredSpans own_spans{spans.start + consumer * kWgmmaM * span_bytes(kHead)};
  const u32 queries_start =
      __shfl_sync(~0u, rows_descriptor(shared.queries() + consumer * kWgmmaM * kSwizzleBytes), 0);
  const u32 keys_start = __shfl_sync(~0u, rows_descriptor(shared.keys(0)), 0);
  const u32 values_start = __shfl_sync(~0u, values_descriptor<kKeys>(shared.values(0)), 0);
  const bool speaks = thread_index() % kWarpSize == 0;
  const auto release = [&](SharedAddress empty) {
    if (speaks) barrier_arrive(empty);
  };
  PipelineState<1> queries;
  PipelineState<kTiles.stages> keys, values;
  turns.open();

  walk_tiles<kHead, kTiles>(sizes, [&](const Tile<kHead, kTiles>& tile) {
    const u32 first_query = tile.first_query + consumer * kWgmmaM;  // of this warpgroup
    OnlineSoftmax<2> softmax(form.exponent());
    Accumulators<16, output_columns(kHead)> output;
    output.clear();
    if (kHead.packed) {
      const u32 row = thread_index() % kWarpgroupSize;
      named_barrier_sync(static_cast<u32>(NamedBarrier::warpgroup) + consumer, kWarpgroupSize);
      if (row < kWgmmaM) own_spans.store(row, sizes.keys_of(tile.sequence, first_query + row));
      named_barrier_sync(static_cast<u32>(NamedBarrier::warpgroup) + consumer, kWarpgroupSize);
    }
    const auto issue_block_scores = [&](Accumulators<16, kKeys>& scores) {
      wgmma_fence();
      issue_dot_products<kElement, kHead.dim, kTiles.queries()>(
          scores, queries_start, keys_start + keys.stage * (block_bytes(kKeys, kHead.dim) >> 4));
      wgmma_commit();
    };
    const auto issue_block_output = [&](const Probabilities& p) {
      wgmma_fence();
      issue_product<kElement>(
          output, p,
          values_start + values.stage * (block_bytes(kKeys, output_columns(kHead)) >> 4));
      wgmma_commit();
    };
    const auto make_block_values = [&](Accumulators<16, kKeys>& scores, u32 block) {
      const u32 first_key = block * kKeys;
      const bool sees_all =
          kHead.packed ? own_spans.all_have(kWgmmaM, first_key, kKeys)
                       : sizes.sees_all(tile.sequence, first_query, kWgmmaM, first_key, kKeys);
      make_values(
          scores, form, !sees_all,
          [&](u32 own) {
            const u32 row = row_of<16>(own);
            return kHead.packed ? spans.at(row)
                                : sizes.keys_of(tile.sequence, tile.first_query + row);
          },
          first_key);
    };

    if (tile.block < tile.end) {
      Probabilities p;
      barrier_wait(shared.queries_full(), queries.phase);
      barrier_wait(shared.keys_full(keys.stage), keys.phase);
      {
        Accumulators<16, kKeys> scores;
        issue_block_scores(scores);
        wgmma_wait<0>();
        pin_registers(sums_of(scores));
        release(shared.keys_empty(keys.stage));
        keys.advance();
        make_block_values(scores, tile.block);
        softmax.raise(scores);  // the output is still 0
        softmax.exponentiate(scores);
        p = rounded<kElement>(scores);
        if (tile.block + 1 < tile.end) barrier_wait(shared.keys_full(keys.stage), keys.phase);
      }
      for (u32 block = tile.block + 1; block < tile.end; ++block) {
        Accumulators<16, kKeys> scores;
        turns.enter();
        issue_block_scores(scores);
        barrier_wait(shared.values_full(values.stage), values.phase);
        issue_block_output(p);
        turns.leave();
        wgmma_wait<1>();
        pin_registers(sums_of(scores));
        release(shared.keys_empty(keys.stage));
        keys.advance();
        make_block_values(scores, block);
        const Rescale<2> rescale = softmax.raise(scores);
        softmax.exponentiate(scores);
        // The assembler moves no exponential behind this wait: they run under the product.
        pin_registers(sums_of(scores));
        if (block + 1 < tile.end) barrier_wait(shared.keys_full(keys.stage), keys.phase);
        wgmma_wait<0>();
        pin_registers(sums_of(output));
        release(shared.values_empty(values.stage));
        values.advance();
        rescale.apply(output);
        p = rounded<kElement>(scores);
      }
      release(shared.queries_empty());
      queries.advance();
      barrier_wait(shared.values_full(values.stage), values.phase);
      issue_block_output(p);
      wgmma_wait<0>();
      pin_registers(sums_of(output));
      release(shared.values_empty(values.stage));
      values.advance();
    }
    float inverse[2], log_sums[2];
    softmax.template finish<kHead.sinks>(inverse, log_sums, form.unit,
                                         sink_of<kHead>(sizes, tile.head));
    store_log_sums(lse, lse_stride, sizes, tile.sequence, tile.head, tile.first_query, log_sums);
    store_pieces<kElement>(TokenRows<kHead.value_dim>(y, tile.sequence, sizes.sequence, tile.head),
                           tile.first_query, 0, output, [&](u32 row) { return inverse[row]; });
  });
}

// Tensors as for attention::forward, of which this kernel reads q, k and v by `maps`. Any number of
// CTAs.
template <HeadShape kHead, ForwardTiles kTiles = hopper_tiles(kHead)>
__device__ __forceinline__ void forward(const AttentionSizes& sizes, const ForwardMaps& maps,
                                        const HeadRows& y, u64 lse, u32 lse_stride) {
  const Shared<kHead, kTiles> shared{launch_memory()};
  if (thread_index() == 0) shared.init_barriers();
  synchronize_block();
  // Consumers are the first warpgroups, so that row_of() gives the row of the tile.
  const u32 warpgroup = __shfl_sync(~0u, thread_index() / kWarpgroupSize, 0);
  if (warpgroup == kTiles.consumers) {
    release_registers<kTiles.producer_registers>();
    if (thread_index() % kWarpgroupSize == 0) produce(shared, sizes, maps);
  } else {
    claim_registers<kTiles.consumer_registers>();
    consume(shared, warpgroup, sizes, y, lse, lse_stride);
  }
}

}  // namespace coda::device::attention::sm90
