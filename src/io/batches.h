// SPDX-License-Identifier: Apache-2.0
// Where the rows of a training batch begin (sample_batch in coda/text_data.h), and held-out data
// window by window.
#pragma once

#include <cstdint>
#include <span>

#include "coda/text_data.h"

namespace coda::io {

// Where row `row` of step `step` starts: uniform in [0, starts). Part of the contract of
// checkpoints: it never changes.
int64_t sample_start(uint64_t seed, int64_t step, int64_t row, int64_t starts);

// Windows [first, first + rows) of `sequence` tokens as a batch, side by side; each token but the
// first is a target once. Beyond the end inputs are 0 and targets kIgnoredTarget.
void read_windows(const Tokens& tokens, int64_t first, int64_t sequence, std::span<int32_t> inputs,
                  std::span<int32_t> targets);

}  // namespace coda::io
