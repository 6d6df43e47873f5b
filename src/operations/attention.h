// SPDX-License-Identifier: Apache-2.0
// What attention's definition and its kernels share: its numbers, and the functions that make up
// its two entries in the registry.
#pragma once

#include <cstdint>
#include <vector>

#include "coda/operation.h"

namespace coda {

struct AttentionShape {
  int64_t sequences = 0;
  int64_t tokens = 0;  // of one sequence
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;   // of queries and keys
  int64_t value_dim = 0;  // of values and outputs
  double scale = 1;
  double soft_cap = 0;  // a score s becomes soft_cap * tanh(s / soft_cap); 0: it stays s
  bool causal = true;   // token i sees tokens j <= i
  int64_t window = 0;   // and of those j > i - window; 0: all

  int64_t group() const { return heads / kv_heads; }
};

// Of a call whose operands have `rows` rows. Throws Error for attributes that do not fit. While
// sizes are symbols, sequences and tokens stay 0.
AttentionShape attention_shape(const OperationSettings& settings, const Dim& rows);

void evaluate_attention(const OperationSettings& settings, const std::vector<Matrix>& operands,
                        std::vector<Matrix>& results);
void evaluate_attention_backward(const OperationSettings& settings,
                                 const std::vector<Matrix>& operands, std::vector<Matrix>& results);
CpuKernel prepare_attention(const OperationCall& call, int threads);
CpuKernel prepare_attention_backward(const OperationCall& call, int threads);
std::vector<GpuKernel> attention_kernels(const OperationCall& call);
std::vector<GpuKernel> attention_backward_kernels(const OperationCall& call);
// `shape`: its rows are the newest tokens.
std::vector<GpuKernel> attention_with_past_kernels(const OperationCall& call,
                                                   const AttentionShape& shape);

}  // namespace coda
