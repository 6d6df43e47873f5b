// SPDX-License-Identifier: Apache-2.0
// Reduces the number of sequences, then of heads, until the scores' gradients fit.
#include "gpu/cudnn/attention_part.h"

#include "base/rounding.h"

namespace coda::gpu::cudnn {

AttentionPart attention_part(const AttentionShape& shape, bool backward, bool deterministic,
                             const PartLimits& limits) {
  AttentionPart part{shape.sequences, shape.kv_heads};
  if (!backward || !deterministic) return part;
  const int64_t of_kv_head = shape.group() * round_up(shape.tokens, int64_t{64}) *
                             round_up(shape.tokens, int64_t{128}) * 2;
  const auto bytes = [&] { return part.sequences * part.kv_heads * of_kv_head; };
  const auto is_too_much = [&] {
    return bytes() > (part.sequences > 1 ? limits.several_sequences : limits.one_sequence);
  };
  // The next smaller divisor of `all`.
  const auto lessen = [](int64_t& some, int64_t all) {
    do --some;
    while (all % some != 0);
  };
  while (is_too_much() && part.sequences > 1) lessen(part.sequences, shape.sequences);
  while (is_too_much() && part.kv_heads > 1) lessen(part.kv_heads, shape.kv_heads);
  part.score_gradient_bytes = bytes();
  return part;
}

int64_t attention_scratch_bytes(const AttentionShape& shape, bool backward, bool deterministic,
                                const PartLimits& limits) {
  const int64_t statistics = shape.sequences * shape.tokens * shape.heads * 4;
  if (!backward) return statistics;
  const AttentionPart part = attention_part(shape, backward, deterministic, limits);
  const int64_t rows = part.sequences * part.kv_heads * shape.group() * shape.tokens;
  return statistics + rows * 4 +
         (deterministic ? part.score_gradient_bytes : rows * shape.head_dim * 4);
}

}  // namespace coda::gpu::cudnn
