// SPDX-License-Identifier: Apache-2.0
// Choosing the next token from logits.
#pragma once

#include <cstdint>
#include <span>

#include "coda/model_runner.h"

namespace coda {

// Of `count` tokens the first that a model with a context of `context` sees: all, or from a
// multiple of half a context on, so that keys and values kept for it serve for many tokens.
size_t context_start(size_t count, size_t context);

// Throws Error for an empty prompt, and for a token that is not of the vocabulary.
void check_prompt(std::span<const int32_t> prompt, int64_t vocabulary);

// The token drawn with probability softmax(logits / temperature), a function of the seed and the
// counter. Of equal logits the lower id counts as likelier. Throws Error if no logit is finite.
int32_t pick_token(std::span<const float> logits, const SamplingOptions& options, uint64_t counter);

}  // namespace coda
