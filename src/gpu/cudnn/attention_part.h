// SPDX-License-Identifier: Apache-2.0
// Divides a batch of attention into parts for cuDNN, and predicts the memory of a part. The
// deterministic backward stores the gradients of the scores, two bytes per pair of tokens, and adds
// dq up from them in order; if that takes too much memory, the batch is processed in parts.
#pragma once

#include <cstdint>

#include "operations/attention.h"

namespace coda::gpu::cudnn {

// The limit for the gradients of the scores of one part, in bytes. With several sequences, a
// higher limit is not faster (a backward of 16 x 2048 tokens takes 2.69 ms in parts of 2.1
// GiB, 2.64 ms whole). A single sequence becomes slower when it is cut (4 x 8192 tokens take 9.3 ms
// whole, 11.3 ms in quarters of a sequence; lab/results/hopper_attention).
struct PartLimits {
  int64_t several_sequences = int64_t{9} << 28;
  int64_t one_sequence = int64_t{9} << 29;
};

// Whole sequences, or as many heads of one sequence as fit.
struct AttentionPart {
  int64_t sequences = 0;
  int64_t kv_heads = 0;
  int64_t score_gradient_bytes = 0;  // 0 if none are stored: forward, or any order
};
AttentionPart attention_part(const AttentionShape& shape, bool backward, bool deterministic,
                             const PartLimits& limits = {});

// The memory of a call, computed without cuDNN: the statistics of each head and, in the backward,
// row sums and a part's gradients of the scores (or dq in fp32 if it is added in any order). After
// compilation cuDNN reports its real use, which is close to this.
int64_t attention_scratch_bytes(const AttentionShape& shape, bool backward, bool deterministic,
                                const PartLimits& limits = {});

}  // namespace coda::gpu::cudnn
