// SPDX-License-Identifier: Apache-2.0
// Attention as graphs of cuDNN's operations. cuDNN recognises a graph by its shape: the operations
// are those of its documentation ("fused flash attention") in the same order, with nothing moved,
// and then one kernel does all of them.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <string>

#include "coda/operation.h"
#include "gpu/cudnn/operation_graph.h"

namespace coda::gpu::cudnn {

// Attention of a part of a batch: of whole sequences, or of some heads of one sequence. Two
// problems that are equal have one compiled graph.
struct AttentionProblem {
  bool backward = false;
  bool deterministic = true;  // of the backward: the same bits each time
  DType dtype = DType::bf16;
  int64_t sequences = 0;
  int64_t tokens = 0;  // of a sequence
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t value_dim = 0;
  int64_t window = 0;  // 0: none
  bool causal = true;
  float scale = 1;
  // Elements from one token to the next of q, k, v, y; backward: and dy, dq, dk, dv.
  std::array<int64_t, 8> token_strides{};

  auto operator<=>(const AttentionProblem&) const = default;
};

// Why cuDNN's attention on a Hopper GPU does not take it; empty: it does.
std::string why_not_cudnn(const OperationCall& call);

// Which tensor of the graph is which.
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
