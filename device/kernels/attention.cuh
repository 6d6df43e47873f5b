// SPDX-License-Identifier: Apache-2.0
// Attention in fp32, forward and backward: one warp for each row of a head, with lanes across the
// head's dimensions, processes keys one after another with an online softmax. It is for tensors in
// fp32, which tensor cores would round, and so it is slow. Tensors of 16 bits use
// device/attention/. Invariant: sums run over keys or queries in ascending order, so results are
// bitwise repeatable.
#pragma once

#include "device/attention/sizes.cuh"
#include "device/config.cuh"
#include "device/element.cuh"
#include "device/ptx/lanes.cuh"
#include "device/values/math.cuh"

namespace coda::device {

// The rows of the keys that the query in a row sees, and of the queries that see its key.
__device__ __forceinline__ TokenSpan keys_of(const AttentionSizes& sizes, u32 row) {
  const u32 sequence = row / sizes.sequence;
  const u32 start = sequence * sizes.sequence;
  const TokenSpan keys = sizes.keys_of(sequence, row - start);
  return {start + keys.first, start + keys.last};
}
__device__ __forceinline__ TokenSpan queries_of(const AttentionSizes& sizes, u32 row) {
  const u32 sequence = row / sizes.sequence;
  const u32 start = sequence * sizes.sequence;
  const TokenSpan queries = sizes.queries_of(sequence, row - start);
  return {start + queries.first, start + queries.last};
}

// A score and its derivative with respect to the dot product.
struct Score {
  float value;
  float slope;
};
__device__ __forceinline__ Score score_of(const AttentionSizes& sizes, float dot) {
  const float score = dot * sizes.scale;
  if (sizes.soft_cap == 0) return {score, sizes.scale};
  const float t = tanhf(score / sizes.soft_cap);
  return {sizes.soft_cap * t, (1.0f - t * t) * sizes.scale};
}

// A row of one head across a warp: lane l holds dimensions l, l + 32, ...
template <u32 kDim>
inline constexpr u32 kDimsPerLane = ceil_div(kDim, kWarpSize);

template <Element kStored, u32 kDim>
__device__ __forceinline__ void load_head(const HeadRows& tensor, u32 row, u32 head,
                                          float (&out)[kDimsPerLane<kDim>]) {
  const u64 first = static_cast<u64>(row) * tensor.stride + head * kDim;
#pragma unroll
  for (u32 i = 0; i < kDimsPerLane<kDim>; ++i) {
    const u32 dim = thread_index() % kWarpSize + i * kWarpSize;
    out[i] = dim < kDim ? load_element<kStored>(tensor.data, first + dim) : 0.0f;
  }
}

template <Element kStored, u32 kDim>
__device__ __forceinline__ void store_head(const HeadRows& tensor, u32 row, u32 head,
                                           const float (&values)[kDimsPerLane<kDim>]) {
  const u64 first = static_cast<u64>(row) * tensor.stride + head * kDim;
#pragma unroll
  for (u32 i = 0; i < kDimsPerLane<kDim>; ++i) {
    const u32 dim = thread_index() % kWarpSize + i * kWarpSize;
    if (dim < kDim) store_element<kStored>(tensor.data, first + dim, values[i]);
  }
}

// The sum over a warp in a fixed order; all lanes get it.
__device__ __forceinline__ float sum_of_lanes(float value) {
#pragma unroll
  for (u32 distance = 16; distance != 0; distance /= 2) value += exchange(value, distance);
  return value;
}

template <u32 kCount>
__device__ __forceinline__ float dot(const float (&a)[kCount], const float (&b)[kCount]) {
  float sum = 0;
#pragma unroll
  for (u32 i = 0; i < kCount; ++i) sum += a[i] * b[i];
  return sum_of_lanes(sum);
}

template <u32 kCount>
__device__ __forceinline__ void add_scaled(float (&sum)[kCount], float scale,
                                           const float (&x)[kCount]) {
#pragma unroll
  for (u32 i = 0; i < kCount; ++i) sum[i] += scale * x[i];
}

// An online softmax with its weighted sum of values. The caller divides by `total` at the end.
template <u32 kValueDim>
struct RunningSoftmax {
  float top = -kInfinity;
  float total = 0;
  float sum[kDimsPerLane<kValueDim>] = {};

  __device__ __forceinline__ void see(float score, const float (&value)[kDimsPerLane<kValueDim>]) {
    if (score > top) {
      const float shrink = expf(top - score);
      total *= shrink;
#pragma unroll
      for (float& element : sum) element *= shrink;
      top = score;
    }
    const float p = expf(score - top);
    total += p;
    add_scaled(sum, p, value);
  }
};

// Computes y and its log-sum-exp (fp32 [rows, heads]).
template <Element kStored, u32 kDim, u32 kValueDim>
__device__ __forceinline__ void attention_forward(const AttentionSizes& sizes, HeadRows q,
                                                  HeadRows k, HeadRows v, HeadRows y, u64 lse,
                                                  u32 lse_stride) {
  const u32 warp = (block_index() * block_threads() + thread_index()) / kWarpSize;
  const u32 row = warp / sizes.heads;
  const u32 head = warp % sizes.heads;
  if (row >= sizes.rows) return;
  const u32 kv_head = head / sizes.group();
  const TokenSpan keys = keys_of(sizes, row);
  float query[kDimsPerLane<kDim>];
  load_head<kStored, kDim>(q, row, head, query);
  RunningSoftmax<kValueDim> softmax;
  if (sizes.sinks != 0) {
    softmax.top = load_element<Element::f32>(sizes.sinks, head);
    softmax.total = softmax.top == -kInfinity ? 0.0f : 1.0f;
  }
  for (u32 j = keys.first; j < keys.last; ++j) {
    float key[kDimsPerLane<kDim>];
    float value[kDimsPerLane<kValueDim>];
    load_head<kStored, kDim>(k, j, kv_head, key);
    load_head<kStored, kValueDim>(v, j, kv_head, value);
    softmax.see(score_of(sizes, dot(query, key)).value, value);
  }
#pragma unroll
  for (float& element : softmax.sum) element = softmax.total == 0 ? 0.0f : element / softmax.total;
  store_head<kStored, kValueDim>(y, row, head, softmax.sum);
  if (thread_index() % kWarpSize == 0) {
    store_element<Element::f32>(lse, static_cast<u64>(row) * lse_stride + head,
                                softmax.top + logf(softmax.total));
  }
}

// The contribution of a query-key pair: p = exp(s - lse), ds = p (dy·v - dy·y) slope.
struct PairGradient {
  float p;
  float ds;
};

template <u32 kCount, u32 kValueCount>
__device__ __forceinline__ PairGradient pair_gradient(const AttentionSizes& sizes, float lse,
                                                      float dy_y, const float (&query)[kCount],
                                                      const float (&key)[kCount],
                                                      const float (&value)[kValueCount],
                                                      const float (&dy)[kValueCount]) {
  const Score score = score_of(sizes, dot(query, key));
  const float p = expf(score.value - lse);
  return {.p = p, .ds = p * (dot(dy, value) - dy_y) * score.slope};
}

__device__ __forceinline__ float load_lse(const AttentionBackward& in, u32 row, u32 head) {
  return load_element<Element::f32>(in.lse, static_cast<u64>(row) * in.lse_stride + head);
}

// One warp per query row of a head: dq = sum over keys of ds k. With sinks, it also stores the
// row's QueryNumbers (attention/sinks.cuh) in `numbers`, without padding.
template <Element kStored, u32 kDim, u32 kValueDim>
__device__ __forceinline__ void attention_backward_queries(const AttentionBackward& in, HeadRows dq,
                                                           u64 numbers) {
  const AttentionSizes& sizes = in.sizes;
  const u32 warp = (block_index() * block_threads() + thread_index()) / kWarpSize;
  const u32 row = warp / sizes.heads;
  const u32 head = warp % sizes.heads;
  if (row >= sizes.rows) return;
  const u32 kv_head = head / sizes.group();
  const TokenSpan keys = keys_of(sizes, row);
  float query[kDimsPerLane<kDim>], y[kDimsPerLane<kValueDim>], dy[kDimsPerLane<kValueDim>];
  load_head<kStored, kDim>(in.q, row, head, query);
  load_head<kStored, kValueDim>(in.y, row, head, y);
  load_head<kStored, kValueDim>(in.dy, row, head, dy);
  const float lse = load_lse(in, row, head);
  const float dy_y = dot(dy, y);
  if (sizes.sinks != 0 && thread_index() % kWarpSize == 0) {
    const u32 sequence = row / sizes.sequence;
    const u64 place = static_cast<u64>(sequence) * sizes.sequence * (sizes.heads - 1) +
                      static_cast<u64>(head) * sizes.sequence + row;
    store_element<Element::f32>(numbers, place, lse == -kInfinity ? kInfinity : lse * kLog2E);
    store_element<Element::f32>(numbers, static_cast<u64>(sizes.rows) * sizes.heads + place, dy_y);
  }
  float sum[kDimsPerLane<kDim>] = {};
  for (u32 j = keys.first; j < keys.last; ++j) {
    float key[kDimsPerLane<kDim>], value[kDimsPerLane<kValueDim>];
    load_head<kStored, kDim>(in.k, j, kv_head, key);
    load_head<kStored, kValueDim>(in.v, j, kv_head, value);
    add_scaled(sum, pair_gradient(sizes, lse, dy_y, query, key, value, dy).ds, key);
  }
  store_head<kStored, kDim>(dq, row, head, sum);
}

// One warp per key row of a key-value head: dk = sum of ds q and dv = sum of p dy, over the heads
// of the group and the queries that see the key.
template <Element kStored, u32 kDim, u32 kValueDim>
__device__ __forceinline__ void attention_backward_keys(const AttentionBackward& in, HeadRows dk,
                                                        HeadRows dv) {
  const AttentionSizes& sizes = in.sizes;
  const u32 warp = (block_index() * block_threads() + thread_index()) / kWarpSize;
  const u32 row = warp / sizes.kv_heads;
  const u32 kv_head = warp % sizes.kv_heads;
  if (row >= sizes.rows) return;
  const TokenSpan queries = queries_of(sizes, row);
  float key[kDimsPerLane<kDim>], value[kDimsPerLane<kValueDim>];
  load_head<kStored, kDim>(in.k, row, kv_head, key);
  load_head<kStored, kValueDim>(in.v, row, kv_head, value);
  float sum_k[kDimsPerLane<kDim>] = {};
  float sum_v[kDimsPerLane<kValueDim>] = {};
  for (u32 head = kv_head * sizes.group(); head < (kv_head + 1) * sizes.group(); ++head) {
    for (u32 i = queries.first; i < queries.last; ++i) {
      float query[kDimsPerLane<kDim>], y[kDimsPerLane<kValueDim>], dy[kDimsPerLane<kValueDim>];
      load_head<kStored, kDim>(in.q, i, head, query);
      load_head<kStored, kValueDim>(in.y, i, head, y);
      load_head<kStored, kValueDim>(in.dy, i, head, dy);
      const PairGradient pair =
          pair_gradient(sizes, load_lse(in, i, head), dot(dy, y), query, key, value, dy);
      add_scaled(sum_k, pair.ds, query);
      add_scaled(sum_v, pair.p, dy);
    }
  }
  store_head<kStored, kDim>(dk, row, kv_head, sum_k);
  store_head<kStored, kValueDim>(dv, row, kv_head, sum_v);
}

}  // namespace coda::device
