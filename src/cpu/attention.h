// SPDX-License-Identifier: Apache-2.0
// Softmax attention over the sequences of a batch and its gradient, as opaque calls. Attributes:
// heads, kv_heads (a divisor of heads; query head h reads h / (heads / kv_heads)), head_dim, scale,
// causal (0 or 1); size "sequence": tokens of a sequence, T. Rows of M are sequences of T rows, one
// after another.
#pragma once

#include <memory>
#include <span>

#include "coda/backend.h"
#include "cpu/attention_blocks.h"

namespace coda::cpu {

std::unique_ptr<Kernel> prepare_attention(const OpaqueCall& call,
                                          std::span<const TensorDecl> tensors,
                                          const DimValues& sizes, int threads);
std::unique_ptr<Kernel> prepare_attention_backward(const OpaqueCall& call,
                                                   std::span<const TensorDecl> tensors,
                                                   const DimValues& sizes, int threads);

// The sizes of a call whose first operand has `rows` rows; throws Error naming the attribute that
// is wrong.
AttentionShape attention_shape(const OpaqueCall& call, int64_t rows, const DimValues& sizes);

}  // namespace coda::cpu
