// SPDX-License-Identifier: Apache-2.0
// Sorts the logits, cuts the list by top_k and top_p, and draws with a counter-based random number.
#include "train/sampling.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "coda/error.h"
#include "models/counter_random.h"

namespace coda {

size_t context_start(size_t count, size_t context) {
  if (count <= context) return 0;
  const size_t half = std::max<size_t>(1, context / 2);
  return (count - context + half - 1) / half * half;
}

void check_prompt(std::span<const int32_t> prompt, int64_t vocabulary) {
  require(!prompt.empty(), "sampling: the prompt is empty; give at least one token");
  for (int32_t id : prompt) {
    require(id >= 0 && id < vocabulary, "sampling: the prompt has token " + std::to_string(id) +
                                            ", but the vocabulary has " +
                                            std::to_string(vocabulary));
  }
}

int32_t pick_token(std::span<const float> logits, const SamplingOptions& options,
                   uint64_t counter) {
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  auto logit = [&](int32_t id) { return logits[static_cast<size_t>(id)]; };
  std::erase_if(order, [&](int32_t id) { return !std::isfinite(logit(id)); });
  require(!order.empty(), "sampling: the model gives no finite logit: its weights are damaged");
  auto likelier = [&](int32_t a, int32_t b) {
    return logit(a) != logit(b) ? logit(a) > logit(b) : a < b;
  };
  const bool is_greedy = options.temperature <= 0;
  size_t kept = is_greedy ? 1 : order.size();
  if (options.top_k > 0) kept = std::min(kept, static_cast<size_t>(options.top_k));
  std::partial_sort(order.begin(), order.begin() + static_cast<int64_t>(kept), order.end(),
                    likelier);
  order.resize(kept);
  if (kept == 1) return order[0];

  std::vector<double> weights;
  for (int32_t id : order) {
    weights.push_back(
        std::exp((static_cast<double>(logit(id)) - logit(order[0])) / options.temperature));
  }
  double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  if (options.top_p < 1) {
    double share = 0;
    size_t likeliest = 0;
    while (likeliest < weights.size() && share < options.top_p * total)
      share += weights[likeliest++];
    weights.resize(std::max<size_t>(1, likeliest));
    order.resize(weights.size());
    total = share;
  }
  double rest = random_uniform(options.seed, stream_of("sample"), counter) * total;
  for (size_t i = 0; i < order.size(); ++i) {
    rest -= weights[i];
    if (rest < 0) return order[i];
  }
  return order[0];  // rounding left a small `rest`
}

}  // namespace coda
