// SPDX-License-Identifier: Apache-2.0
// Attention of the newest tokens of a sequence to each other and to cached keys and values. Each
// block computes one query row of one head. There are few such rows, so the warps of a block divide
// the keys among them.
// Invariant: each warp processes its keys in ascending order, and warps are combined in order, so
// results are bitwise repeatable.
#pragma once

#include "device/kernels/attention.cuh"
#include "device/ptx/global_memory.cuh"

namespace coda::device {

inline constexpr u32 kPastWarps = 8;

// The partial results of the warps for one row.
template <u32 kValueDim>
struct PastShares {
  float top[kPastWarps];
  float total[kPastWarps];
  float sum[kPastWarps][kValueDim];
};

struct PastRows {
  HeadRows keys;
  HeadRows values;
  u32 length;  // number of leading rows that are valid
};

// Selects field by field: selecting between structs would put both into local memory.
__device__ __forceinline__ HeadRows chosen(bool first, const HeadRows& a, const HeadRows& b) {
  return {first ? a.data : b.data, first ? a.stride : b.stride};
}

// k and v hold the newest `sizes.rows` tokens, as q does; `sizes.sequence` and `causal` are
// ignored. `sink`: the head's logit that is only in the denominator of softmax, -infinity if none.
template <Element kStored, u32 kDim, u32 kValueDim>
__device__ __forceinline__ void attention_with_past(PastShares<kValueDim>& shares,
                                                    const AttentionSizes& sizes, HeadRows q,
                                                    HeadRows k, HeadRows v, const PastRows& past,
                                                    float sink, HeadRows y) {
  const u32 row = block_index() / sizes.heads;
  const u32 head = block_index() % sizes.heads;
  const u32 kv_head = head / sizes.group();
  const u32 warp = thread_index() / kWarpSize;
  const u32 lane = thread_index() % kWarpSize;
  const u32 end = past.length + row + 1;
  const u32 begin = sizes.window != 0 && end > sizes.window ? end - sizes.window : 0;
  float query[kDimsPerLane<kDim>];
  load_head<kStored, kDim>(q, row, head, query);
  RunningSoftmax<kValueDim> own;
  for (u32 j = begin + warp; j < end; j += kPastWarps) {
    const bool is_past = j < past.length;
    const u32 place = is_past ? j : j - past.length;
    float key[kDimsPerLane<kDim>];
    float value[kDimsPerLane<kValueDim>];
    load_head<kStored, kDim>(chosen(is_past, past.keys, k), place, kv_head, key);
    load_head<kStored, kValueDim>(chosen(is_past, past.values, v), place, kv_head, value);
    own.see(score_of(sizes, dot(query, key)).value, value);
  }
  if (lane == 0) {
    shares.top[warp] = own.top;
    shares.total[warp] = own.total;
  }
#pragma unroll
  for (u32 i = 0; i < kDimsPerLane<kValueDim>; ++i) {
    const u32 dim = lane + i * kWarpSize;
    if (dim < kValueDim) shares.sum[warp][dim] = own.sum[i];
  }
  synchronize_block();
  if (warp != 0) return;
  float top = sink;
  for (u32 w = 0; w < kPastWarps; ++w) top = fmaxf(top, shares.top[w]);
  float total = expf(sink - top);
  float sum[kDimsPerLane<kValueDim>] = {};
  for (u32 w = 0; w < kPastWarps; ++w) {
    const float share = expf(shares.top[w] - top);  // 0 for a warp without keys
    total += share * shares.total[w];
#pragma unroll
    for (u32 i = 0; i < kDimsPerLane<kValueDim>; ++i) {
      const u32 dim = lane + i * kWarpSize;
      if (dim < kValueDim) sum[i] += share * shares.sum[w][dim];
    }
  }
#pragma unroll
  for (float& element : sum) element /= total;
  store_head<kStored, kValueDim>(y, row, head, sum);
}

}  // namespace coda::device
