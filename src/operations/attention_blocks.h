// SPDX-License-Identifier: Apache-2.0
// The blockwise softmax attention of one sequence and one key-value head, forward and backward:
// what one thread does. Scores exist for one block of queries and keys at a time. The result of
// each row, and of each gradient row, is the same whatever blocks a task is given and whichever
// thread runs it: sums over keys, over queries and over heads go in ascending order.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/rounding.h"
#include "coda/tensor.h"
#include "operations/attention.h"

namespace coda::cpu {

// Queries and keys of a block: a multiple of every row group of the products.
inline constexpr int64_t kAttentionBlock = 96;

inline int64_t blocks_of(const AttentionShape& shape) {
  return ceil_div(shape.tokens, kAttentionBlock);
}

struct AttentionForward {
  AttentionShape shape;
  std::vector<TokenRange> documents;  // of each row
  TensorView q, k, v;                 // [sequences * tokens, heads of a row], f32, bf16 or f16
  TensorView y;
  TensorView lse;    // f32 [sequences * tokens, heads]: log of the sum of exp(score)
  TensorView sinks;  // f32 [1, heads], if the shape has them
};

struct AttentionBackward {
  AttentionShape shape;
  std::vector<TokenRange> documents;
  TensorView q, k, v, y, lse, dy;
  TensorView dq, dk, dv;
  // With sinks: their gradient from each block of queries, [sequences * blocks][heads]. A task
  // with want_dq writes those of its queries that see a key.
  TensorView sinks;
  double* sink_gradients = nullptr;
};

// Blocks first, first + step, ... of a sequence.
struct BlockRange {
  int64_t first = 0;
  int64_t step = 1;
};

// Floats of scratch that a task needs; 64-byte aligned, initialised once (its content does not
// matter).
size_t attention_forward_scratch(const AttentionShape& shape);
size_t attention_backward_scratch(const AttentionShape& shape);

// y and lse of the query blocks `queries`, for the query heads that read `kv_head`.
void attention_forward(const AttentionForward& call, int64_t sequence, int64_t kv_head,
                       BlockRange queries, float* scratch);

// Of the query blocks `queries` against the key blocks `keys`. dq is right if `keys` is all blocks,
// dk and dv if `queries` is; each is written only if wanted.
struct AttentionBackwardTask {
  int64_t sequence = 0;
  int64_t kv_head = 0;
  BlockRange queries;
  BlockRange keys;
  bool want_dq = true;
  bool want_dkv = true;
};
void attention_backward(const AttentionBackward& call, const AttentionBackwardTask& task,
                        float* scratch);

}  // namespace coda::cpu
