// SPDX-License-Identifier: Apache-2.0
// Recomputes the whole context for each token; TextGenerator is the fast way.
#include <algorithm>

#include "coda/error.h"
#include "coda/model_runner.h"
#include "train/sampling.h"

namespace coda {

void generate(ModelRunner& runner, std::vector<int32_t> prompt, int64_t count,
              const SamplingOptions& options, const std::function<bool(int32_t)>& on_token) {
  check_prompt(prompt, runner.model().vocabulary);
  const std::vector<int32_t> targets(static_cast<size_t>(runner.options().sequence),
                                     kIgnoredTarget);
  std::vector<int32_t> window(targets.size());
  for (int64_t i = 0; i < count; ++i) {
    // Attention is causal, so padding after the last token has no effect.
    const size_t start = context_start(prompt.size(), window.size());
    const size_t used = prompt.size() - start;
    std::fill(window.begin(), window.end(), 0);
    std::copy(prompt.begin() + static_cast<int64_t>(start), prompt.end(), window.begin());
    runner.forward(window, targets);
    const int32_t id = pick_token(runner.logits(static_cast<int64_t>(used) - 1), options,
                                  static_cast<uint64_t>(i));
    if (!on_token(id)) return;
    prompt.push_back(id);
  }
}

}  // namespace coda
