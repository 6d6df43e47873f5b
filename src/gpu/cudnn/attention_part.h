// SPDX-License-Identifier: Apache-2.0
// In what parts cuDNN does a batch of attention, and the memory that a part takes beside its
// tensors. The deterministic backward keeps the gradients of the scores, two bytes for each pair of
// tokens, and adds dq up from them in order; where that is too much, a batch is done in parts.
#pragma once

#include <cstdint>

#include "operations/attention.h"

namespace coda::gpu::cudnn {

// How large the gradients of the scores of one part of a batch may be, in bytes. Several sequences:
// more gains nothing (a backward of 16 x 2048 tokens takes 2.69 ms in parts of 2.1 GiB, 2.64
// whole). One sequence loses by being cut: 4 x 8192 tokens take 9.3 ms whole, 11.3 in quarters of a
// sequence (lab/results/hopper_attention).
struct PartLimits {
  int64_t several_sequences = int64_t{9} << 28;
  int64_t one_sequence = int64_t{9} << 29;
};

// Whole sequences, or of one as many heads as fit.
struct AttentionPart {
  int64_t sequences = 0;
  int64_t kv_heads = 0;
  int64_t score_gradient_bytes = 0;  // 0 where none are kept: forward, and in any order
};
AttentionPart attention_part(const AttentionShape& shape, bool backward, bool deterministic,
                             const PartLimits& limits = {});

// What a call uses while it runs, known without cuDNN: the statistics for each head, and for the
// backward rows' sums and a part's gradients of the scores, or dq in fp32 where it is added up in
// any order. cuDNN says itself what it takes once a graph is compiled, which is about this.
int64_t attention_scratch_bytes(const AttentionShape& shape, bool backward, bool deterministic,
                                const PartLimits& limits = {});

}  // namespace coda::gpu::cudnn
