// SPDX-License-Identifier: Apache-2.0
// Text from a model, a token at a time. Each token runs the whole context through the forward plan:
// simple, and exactly what training computed.
#pragma once

#include <functional>
#include <vector>

#include "train/model_runner.h"
#include "train/sampling.h"

namespace coda::train {

// `runner` has Task::logits and a batch of 1; the model sees at most its `sequence` last tokens.
// Calls `on_token` for each of `count` new tokens; when it returns false, no more are made.
void generate(ModelRunner& runner, int64_t sequence, std::vector<int32_t> prompt, int64_t count,
              const SamplingOptions& options, const std::function<bool(int32_t)>& on_token);

}  // namespace coda::train
