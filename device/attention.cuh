// SPDX-License-Identifier: Apache-2.0
// Attention, forward and backward, plain and deterministic: a warp for each row of a head, its
// lanes across the head's dimensions, keys one after another with an online softmax. It makes whole
// models run and be checked on a GPU; it is not fast, and a caller who has a fast attention uses
// that between the programs (docs/architecture.md).
// Invariant: sums run over keys, or queries, in ascending order, so results repeat bitwise.
#pragma once

#include "device/config.cuh"
#include "device/element.cuh"

namespace coda::device {

struct AttentionSizes {
  u32 rows;  // tokens of all sequences
  u32 sequence;
  u32 heads;
  u32 kv_heads;
  u32 causal;
  float scale;

  constexpr u32 group() const { return heads / kv_heads; }
};

// A [rows, heads * head_dim] tensor of one type.
struct HeadRows {
  u64 data;
  u32 stride;  // elements between rows
};

// A row of one head across a warp: lane l holds dimensions l, l + 32, ...
template <u32 kDim>
inline constexpr u32 kDimsPerLane = ceil_div(kDim, kWarpSize);

template <Stored kStored, u32 kDim>
__device__ __forceinline__ void load_head(const HeadRows& tensor, u32 row, u32 head,
                                          float (&out)[kDimsPerLane<kDim>]) {
  const u64 first = static_cast<u64>(row) * tensor.stride + head * kDim;
#pragma unroll
  for (u32 i = 0; i < kDimsPerLane<kDim>; ++i) {
    const u32 dim = threadIdx.x % kWarpSize + i * kWarpSize;
    out[i] = dim < kDim ? load_element<kStored>(tensor.data, first + dim) : 0.0f;
  }
}

template <Stored kStored, u32 kDim>
__device__ __forceinline__ void store_head(const HeadRows& tensor, u32 row, u32 head,
                                           const float (&values)[kDimsPerLane<kDim>]) {
  const u64 first = static_cast<u64>(row) * tensor.stride + head * kDim;
#pragma unroll
  for (u32 i = 0; i < kDimsPerLane<kDim>; ++i) {
    const u32 dim = threadIdx.x % kWarpSize + i * kWarpSize;
    if (dim < kDim) store_element<kStored>(tensor.data, first + dim, values[i]);
  }
}

template <u32 kCount>
__device__ __forceinline__ float dot(const float (&a)[kCount], const float (&b)[kCount]) {
  float sum = 0;
#pragma unroll
  for (u32 i = 0; i < kCount; ++i) sum += a[i] * b[i];
  return warp_sum(sum);
}

template <u32 kCount>
__device__ __forceinline__ void add_scaled(float (&sum)[kCount], float scale,
                                           const float (&x)[kCount]) {
#pragma unroll
  for (u32 i = 0; i < kCount; ++i) sum[i] += scale * x[i];
}

// y and its log-sum-exp (fp32 [rows, heads]).
template <Stored kStored, u32 kDim>
__device__ __forceinline__ void attention_forward(const AttentionSizes& sizes, HeadRows q,
                                                  HeadRows k, HeadRows v, HeadRows y, u64 lse,
                                                  u32 lse_stride) {
  const u32 warp = (blockIdx.x * blockDim.x + threadIdx.x) / kWarpSize;
  const u32 row = warp / sizes.heads;
  const u32 head = warp % sizes.heads;
  if (row >= sizes.rows) return;
  const u32 kv_head = head / sizes.group();
  const u32 first = row / sizes.sequence * sizes.sequence;
  const u32 last = sizes.causal != 0 ? row + 1 : first + sizes.sequence;
  float query[kDimsPerLane<kDim>];
  load_head<kStored, kDim>(q, row, head, query);
  float sum[kDimsPerLane<kDim>] = {};
  float top = -__int_as_float(0x7f800000);
  float total = 0;
  for (u32 j = first; j < last; ++j) {
    float key[kDimsPerLane<kDim>];
    float value[kDimsPerLane<kDim>];
    load_head<kStored, kDim>(k, j, kv_head, key);
    load_head<kStored, kDim>(v, j, kv_head, value);
    const float score = dot(query, key) * sizes.scale;
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
#pragma unroll
  for (float& element : sum) element /= total;
  store_head<kStored, kDim>(y, row, head, sum);
  if (threadIdx.x % kWarpSize == 0) {
    store_element<Stored::f32>(lse, static_cast<u64>(row) * lse_stride + head, top + logf(total));
  }
}

struct AttentionBackward {
  AttentionSizes sizes;
  HeadRows q, k, v, y, dy;
  u64 lse;
  u32 lse_stride;
};

// What a pair of a query and a key contributes: p = exp(s - lse), ds = p (dy·v - dy·y) scale.
struct PairGradient {
  float p;
  float ds;
};

template <u32 kCount>
__device__ __forceinline__ PairGradient pair_gradient(const AttentionSizes& sizes, float lse,
                                                      float dy_y, const float (&query)[kCount],
                                                      const float (&key)[kCount],
                                                      const float (&value)[kCount],
                                                      const float (&dy)[kCount]) {
  const float p = expf(dot(query, key) * sizes.scale - lse);
  return {.p = p, .ds = p * (dot(dy, value) - dy_y) * sizes.scale};
}

__device__ __forceinline__ float load_lse(const AttentionBackward& in, u32 row, u32 head) {
  return load_element<Stored::f32>(in.lse, static_cast<u64>(row) * in.lse_stride + head);
}

// A warp a query row of a head: dq = sum over keys of ds k.
template <Stored kStored, u32 kDim>
__device__ __forceinline__ void attention_backward_queries(const AttentionBackward& in,
                                                           HeadRows dq) {
  const AttentionSizes& sizes = in.sizes;
  const u32 warp = (blockIdx.x * blockDim.x + threadIdx.x) / kWarpSize;
  const u32 row = warp / sizes.heads;
  const u32 head = warp % sizes.heads;
  if (row >= sizes.rows) return;
  const u32 kv_head = head / sizes.group();
  const u32 first = row / sizes.sequence * sizes.sequence;
  const u32 last = sizes.causal != 0 ? row + 1 : first + sizes.sequence;
  float query[kDimsPerLane<kDim>], y[kDimsPerLane<kDim>], dy[kDimsPerLane<kDim>];
  load_head<kStored, kDim>(in.q, row, head, query);
  load_head<kStored, kDim>(in.y, row, head, y);
  load_head<kStored, kDim>(in.dy, row, head, dy);
  const float lse = load_lse(in, row, head);
  const float dy_y = dot(dy, y);
  float sum[kDimsPerLane<kDim>] = {};
  for (u32 j = first; j < last; ++j) {
    float key[kDimsPerLane<kDim>], value[kDimsPerLane<kDim>];
    load_head<kStored, kDim>(in.k, j, kv_head, key);
    load_head<kStored, kDim>(in.v, j, kv_head, value);
    add_scaled(sum, pair_gradient(sizes, lse, dy_y, query, key, value, dy).ds, key);
  }
  store_head<kStored, kDim>(dq, row, head, sum);
}

// A warp a key row of a key-value head: dk = sum of ds q and dv = sum of p dy, over the heads of
// the group and the queries that see the key.
template <Stored kStored, u32 kDim>
__device__ __forceinline__ void attention_backward_keys(const AttentionBackward& in, HeadRows dk,
                                                        HeadRows dv) {
  const AttentionSizes& sizes = in.sizes;
  const u32 warp = (blockIdx.x * blockDim.x + threadIdx.x) / kWarpSize;
  const u32 row = warp / sizes.kv_heads;
  const u32 kv_head = warp % sizes.kv_heads;
  if (row >= sizes.rows) return;
  const u32 start = row / sizes.sequence * sizes.sequence;
  const u32 first = sizes.causal != 0 ? row : start;
  float key[kDimsPerLane<kDim>], value[kDimsPerLane<kDim>];
  load_head<kStored, kDim>(in.k, row, kv_head, key);
  load_head<kStored, kDim>(in.v, row, kv_head, value);
  float sum_k[kDimsPerLane<kDim>] = {};
  float sum_v[kDimsPerLane<kDim>] = {};
  for (u32 head = kv_head * sizes.group(); head < (kv_head + 1) * sizes.group(); ++head) {
    for (u32 i = first; i < start + sizes.sequence; ++i) {
      float query[kDimsPerLane<kDim>], y[kDimsPerLane<kDim>], dy[kDimsPerLane<kDim>];
      load_head<kStored, kDim>(in.q, i, head, query);
      load_head<kStored, kDim>(in.y, i, head, y);
      load_head<kStored, kDim>(in.dy, i, head, dy);
      const PairGradient pair =
          pair_gradient(sizes, load_lse(in, i, head), dot(dy, y), query, key, value, dy);
      add_scaled(sum_k, pair.ds, query);
      add_scaled(sum_v, pair.p, dy);
    }
  }
  store_head<kStored, kDim>(dk, row, kv_head, sum_k);
  store_head<kStored, kDim>(dv, row, kv_head, sum_v);
}

}  // namespace coda::device
