// SPDX-License-Identifier: Apache-2.0
// Choosing the next token from logits.
#pragma once

#include <cstdint>
#include <span>

#include "coda/model_runner.h"

namespace coda {

// The first of `count` tokens that a model with this context sees: 0, or a multiple of half a
// context, so that the cache of keys and values stays valid for many tokens.
size_t context_start(size_t count, size_t context);

// Throws Error for an empty prompt, and for a token outside the vocabulary.
void check_prompt(std::span<const int32_t> prompt, int64_t vocabulary);

// Draws a token with probability softmax(logits / temperature); depends only on the seed and the
// counter. Of equal logits the lower id counts as likelier. Throws Error if no logit is finite.
int32_t pick_token(std::span<const float> logits, const SamplingOptions& options, uint64_t counter);

}  // namespace coda
