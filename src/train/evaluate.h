// SPDX-License-Identifier: Apache-2.0
// The loss of a model on a text. Every token but the first is predicted exactly once, from at least
// sequence - stride tokens before it (fewer only near the start of the text).
#pragma once

#include <functional>

#include "io/text_data.h"
#include "train/model_runner.h"

namespace coda::train {

struct Evaluation {
  double total_loss = 0;  // nats
  int64_t predicted = 0;  // tokens

  double loss() const { return total_loss / static_cast<double>(predicted); }
};

// `runner` has Task::losses. Windows of its sequence start `stride` apart, 0 < stride <= sequence.
// `progress` is told how many tokens are predicted so far; when it returns false, the evaluation
// stops there.
Evaluation evaluate(ModelRunner& runner, const io::Tokens& tokens, int64_t batch, int64_t sequence,
                    int64_t stride, const std::function<bool(int64_t)>& progress = {});

}  // namespace coda::train
