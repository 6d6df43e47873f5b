// SPDX-License-Identifier: Apache-2.0
// Batches by a counter: splitmix64's finalizer over (seed, step, row).
#include "io/batches.h"

#include "coda/error.h"
#include "coda/models.h"
#include "io/mapped_file.h"

namespace coda::io {
namespace {

uint64_t mixed(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

}  // namespace

int64_t sample_start(uint64_t seed, int64_t step, int64_t row, int64_t starts) {
  const uint64_t bits =
      mixed(mixed(mixed(seed) ^ static_cast<uint64_t>(step)) ^ static_cast<uint64_t>(row));
  // The high half of the product is uniform in [0, starts), but for 2^-64 of a share.
  return static_cast<int64_t>(
      (static_cast<unsigned __int128>(bits) * static_cast<uint64_t>(starts)) >> 64);
}

void read_windows(const Tokens& tokens, int64_t first, int64_t sequence, std::span<int32_t> inputs,
                  std::span<int32_t> targets) {
  invariant(inputs.size() == targets.size() &&
                static_cast<int64_t>(inputs.size()) % sequence == 0 && first >= 0,
            "read_windows: whole rows");
  for (size_t i = 0; i < inputs.size(); ++i) {
    const int64_t place = first * sequence + static_cast<int64_t>(i);
    const bool has_target = place + 1 < tokens.size();
    inputs[i] = has_target ? tokens[place] : 0;
    targets[i] = has_target ? tokens[place + 1] : kIgnoredTarget;
  }
  require_whole(tokens.bytes);
}

}  // namespace coda::io

namespace coda {

void sample_batch(const Tokens& tokens, uint64_t seed, int64_t step, int64_t first_row,
                  int64_t sequence, std::span<int32_t> inputs, std::span<int32_t> targets) {
  require(sequence >= 1 && inputs.size() == targets.size() && std::ssize(inputs) % sequence == 0,
          "sample_batch: inputs and targets must be as many whole rows of " +
              std::to_string(sequence) + " tokens");
  require(tokens.size() > sequence, tokens.source + ": there are no " +
                                        std::to_string(sequence + 1) +
                                        " tokens, a sequence and the one behind it");
  const int64_t rows = std::ssize(inputs) / sequence;
  const int64_t starts = tokens.size() - sequence;
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t start = io::sample_start(seed, step, first_row + r, starts);
    for (int64_t t = 0; t < sequence; ++t) {
      inputs[static_cast<size_t>(r * sequence + t)] = tokens[start + t];
      targets[static_cast<size_t>(r * sequence + t)] = tokens[start + t + 1];
    }
  }
  io::require_whole(tokens.bytes);
}

}  // namespace coda
