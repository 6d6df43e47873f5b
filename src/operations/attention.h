// SPDX-License-Identifier: Apache-2.0
// What attention's definition and its kernels share: its numbers, its mask, and the functions that
// make up its two entries in the registry.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
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
  double soft_cap = 0;         // a score s becomes soft_cap * tanh(s / soft_cap); 0: it stays s
  bool causal = true;          // token i sees tokens j <= i
  int64_t window = 0;          // and of those j > i - window; 0: all
  bool has_documents = false;  // a token sees only tokens of its document
  bool has_key_spans = false;  // `documents` has two more columns: the queries that see a key
  bool has_sinks = false;      // each head has a logit in the denominator of softmax only

  int64_t group() const { return heads / kv_heads; }
  // The places of the optional operands among this number of operands.
  size_t documents(size_t operands) const { return operands - (has_sinks ? 2 : 1); }
  static size_t sinks(size_t operands) { return operands - 1; }
  // Whether a tensor of a call is `sinks` or, of the backward, its gradient.
  bool is_of_sinks(size_t tensor, size_t operands) const {
    return has_sinks && (tensor == sinks(operands) || tensor == operands + 3);
  }
};

// Tokens of one sequence, from `first` to in front of `last`.
struct TokenRange {
  int64_t first = 0;
  int64_t last = 0;
};

// The keys that query `token` of a sequence sees. Both ends ascend with the token.
inline TokenRange keys_of(const AttentionShape& shape, int64_t token, const TokenRange& document) {
  const int64_t first = shape.window == 0 ? 0 : token - shape.window + 1;
  const int64_t last = shape.causal ? token + 1 : shape.tokens;
  return {std::max(first, document.first), std::min(last, document.last)};
}

// The document of each row: of a call without documents, and by the operand `documents`, of which
// end(row, 0) and end(row, 1) are the numbers of a row. Throws Error unless all ends lie in the
// sequence and ascend.
std::vector<TokenRange> sequences_as_documents(const AttentionShape& shape);
std::vector<TokenRange> checked_documents(
    const AttentionShape& shape, const std::function<int64_t(int64_t row, int64_t which)>& end);

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
// Returns true if the library's attention kernels (the two functions above) are faster than cuDNN
// for this head size on this GPU: for heads of 64, 96 and 128 on Hopper. The measurements are in
// lab/notebook/hopper.md.
bool own_attention_is_fastest(const OperationCall& call);
// `shape`: its rows are the newest tokens.
std::vector<GpuKernel> attention_with_past_kernels(const OperationCall& call,
                                                   const AttentionShape& shape);

}  // namespace coda
