// SPDX-License-Identifier: Apache-2.0
// Choosing the next token from logits.
#pragma once

#include <cstdint>
#include <span>

#include "coda/model_runner.h"

namespace coda {

// The token drawn with probability softmax(logits / temperature), a function of the seed and the
// counter. Of equal logits the lower id counts as likelier. Throws Error if no logit is finite.
int32_t pick_token(std::span<const float> logits, const SamplingOptions& options, uint64_t counter);

}  // namespace coda
