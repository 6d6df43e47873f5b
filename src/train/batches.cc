// SPDX-License-Identifier: Apache-2.0
#include "train/batches.h"

#include <algorithm>
#include <bit>
#include <string>

#include "coda/error.h"
#include "models/counter_random.h"

namespace coda::train {
namespace {

// A permutation of [0, count): a Feistel network over the next even power of two, walked until it
// falls inside. Needs no memory, so epochs of any size cost nothing.
uint64_t permuted(uint64_t index, uint64_t count, uint64_t seed, uint64_t epoch) {
  const uint64_t half = std::max<uint64_t>(1, (std::bit_width(count - 1) + 1) / 2);
  const uint64_t mask = (uint64_t{1} << half) - 1;
  uint64_t place = index;
  do {
    uint64_t left = place >> half;
    uint64_t right = place & mask;
    for (uint64_t round = 0; round < 4; ++round) {
      const uint64_t next = left ^ (random_bits(seed, epoch * 4 + round, right) & mask);
      left = right;
      right = next;
    }
    place = left << half | right;
  } while (place >= count);
  return place;
}

}  // namespace

BatchSampler::BatchSampler(std::span<const int32_t> tokens, int64_t sequence, uint64_t seed)
    : tokens_(tokens), sequence_(static_cast<uint64_t>(sequence)), seed_(seed) {
  require(tokens.size() > sequence_, "the text has " + std::to_string(tokens.size()) +
                                         " tokens, but a sequence of " + std::to_string(sequence) +
                                         " needs one more than that: give more text or a smaller "
                                         "--sequence");
  // One window fewer than fit, where possible, so that an epoch can start anywhere in the first.
  windows_ = std::max<uint64_t>(1, (tokens.size() - 1) / sequence_ - 1);
}

uint64_t BatchSampler::start_of(uint64_t index) const {
  const uint64_t epoch = index / windows_;
  const uint64_t room = tokens_.size() - 1 - windows_ * sequence_;  // what the windows leave over
  const uint64_t offset = random_bits(seed_, stream_of("offset"), epoch) % (room + 1);
  return offset + permuted(index % windows_, windows_, seed_, epoch) * sequence_;
}

void BatchSampler::sample(uint64_t index, std::span<int32_t> ids,
                          std::span<int32_t> targets) const {
  const uint64_t start = start_of(index);
  std::copy_n(tokens_.begin() + static_cast<int64_t>(start), sequence_, ids.begin());
  std::copy_n(tokens_.begin() + static_cast<int64_t>(start) + 1, sequence_, targets.begin());
}

}  // namespace coda::train
