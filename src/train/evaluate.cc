// SPDX-License-Identifier: Apache-2.0
// Fills batches of windows; each window has targets only for tokens that no earlier window
// predicts.
#include <algorithm>

#include "coda/error.h"
#include "coda/model_runner.h"
#include "io/mapped_file.h"

namespace coda {
namespace {

// Fills the window that starts at `start` with ids, and with targets for tokens that no earlier
// window predicts. Returns the number of targets.
int64_t fill_window(const Tokens& tokens, int64_t start, int64_t stride, std::span<int32_t> ids,
                    std::span<int32_t> targets) {
  std::fill(ids.begin(), ids.end(), 0);
  std::fill(targets.begin(), targets.end(), kIgnoredTarget);
  const auto sequence = static_cast<int64_t>(ids.size());
  const int64_t first_new = start == 0 ? 0 : sequence - stride;
  int64_t predicted = 0;
  for (int64_t i = 0; i < sequence && start + i + 1 < tokens.size(); ++i) {
    ids[static_cast<size_t>(i)] = tokens[start + i];
    if (i < first_new) continue;
    targets[static_cast<size_t>(i)] = tokens[start + i + 1];
    ++predicted;
  }
  return predicted;
}

}  // namespace

Evaluation evaluate(ModelRunner& runner, const Tokens& tokens, int64_t stride,
                    const std::function<bool(int64_t)>& progress) {
  const int64_t batch = runner.options().batch;
  const int64_t sequence = runner.options().sequence;
  require(stride >= 1 && stride <= sequence, "the stride must be from 1 to the sequence, " +
                                                 std::to_string(sequence) + ", not " +
                                                 std::to_string(stride));
  require(tokens.size() >= 2,
          tokens.source + ": there must be two tokens, one to predict the next");
  std::vector<int32_t> ids(static_cast<size_t>(batch * sequence));
  std::vector<int32_t> targets(ids.size());
  Evaluation result;
  const int64_t to_predict = tokens.size() - 1;
  int64_t start = 0;
  while (result.predicted < to_predict) {
    for (int64_t row = 0; row < batch; ++row, start += stride) {
      const auto place = static_cast<size_t>(row * sequence);
      const auto count = static_cast<size_t>(sequence);
      result.predicted += fill_window(tokens, start, stride, std::span(ids).subspan(place, count),
                                      std::span(targets).subspan(place, count));
    }
    io::require_whole(tokens.bytes);
    runner.forward(ids, targets);
    result.dropped += runner.dropped();
    for (float loss : runner.row_losses()) result.total_loss += loss;
    if (progress && !progress(result.predicted)) break;
  }
  return result;
}

}  // namespace coda
