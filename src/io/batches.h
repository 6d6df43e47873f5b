// SPDX-License-Identifier: Apache-2.0
// Batches of sequences. A training row's place is a pure function of (seed, step, row): a resumed
// run sees the same data, and so does one that splits a step's rows differently over its passes.
// Held-out data is read window by window.
#pragma once

#include <cstdint>
#include <span>

#include "io/text_data.h"

namespace coda::io {

inline constexpr int32_t kIgnoredTarget = -100;  // as in Hugging Face labels

// Where row `row` of step `step` starts: uniform in [0, starts). Part of the contract of
// checkpoints: it never changes.
int64_t sample_start(uint64_t seed, int64_t step, int64_t row, int64_t starts);

// Rows [first_row, first_row + rows) of a step's batch: inputs and targets [rows, sequence], where
// targets are the inputs' next tokens and rows = inputs.size() / sequence. `tokens` has at least
// sequence + 1 tokens.
void sample_batch(const Tokens& tokens, uint64_t seed, int64_t step, int64_t first_row,
                  int64_t sequence, std::span<int32_t> inputs, std::span<int32_t> targets);

// Windows of `sequence` tokens, side by side; each token but the first is a target once.
int64_t window_count(const Tokens& tokens, int64_t sequence);

// Windows [first, first + rows) as a batch; beyond the end inputs are 0 and targets kIgnoredTarget.
void read_windows(const Tokens& tokens, int64_t first, int64_t sequence, std::span<int32_t> inputs,
                  std::span<int32_t> targets);

}  // namespace coda::io
