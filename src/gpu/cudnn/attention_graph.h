// SPDX-License-Identifier: Apache-2.0
// Attention as graphs of cuDNN's operations. cuDNN recognises a graph by its structure: if the
// operations are exactly those of its documentation ("fused flash attention") in the same order,
// one kernel runs all of them.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <string>

#include "coda/operation.h"
#include "gpu/cudnn/operation_graph.h"

namespace coda::gpu::cudnn {

// Attention over a part of a batch: whole sequences, or some heads of one sequence. Equal problems
// share one compiled graph.
struct AttentionProblem {
  bool backward = false;
  bool deterministic = true;  // of the backward: bitwise repeatable
  DType dtype = DType::bf16;
  int64_t sequences = 0;
  int64_t tokens = 0;  // per sequence
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t value_dim = 0;
  int64_t window = 0;  // 0: none
  bool causal = true;
  float scale = 1;
  // Elements between consecutive tokens of q, k, v, y and, in the backward, dy, dq, dk, dv.
  std::array<int64_t, 8> token_strides{};

  auto operator<=>(const AttentionProblem&) const = default;
};

// Why cuDNN's attention on Hopper does not support the call; empty: it does.
std::string why_not_cudnn(const OperationCall& call);

// The indices of the graph's tensors.
struct AttentionGraph {
  OperationGraph graph;
  int q = -1, k = -1, v = -1, y = -1;
  int statistics = -1;  // log-sum-exp, fp32 [sequences, heads, tokens]
  int dy = -1, dq = -1, dk = -1, dv = -1;
  int row_sums = -1;  // scratch of the backward: fp32 [sequences, heads, tokens]
  int dq_sums = -1;   // scratch where dq is added up in any order: fp32, as large as dq; or -1
};

AttentionGraph attention_graph(const AttentionProblem& problem);

}  // namespace coda::gpu::cudnn
