// SPDX-License-Identifier: Apache-2.0
// Training samples as a pure function of a counter: sample i of a stream of tokens is the same
// whenever and on whatever machine it is asked for, so a resumed run sees the data that an
// uninterrupted one does. Each epoch visits disjoint windows once, in an order and from an offset
// of its own.
#pragma once

#include <cstdint>
#include <span>

namespace coda::train {

class BatchSampler {
 public:
  // `tokens` must outlive the sampler. Throws Error if there is not one sequence and the token
  // behind it.
  BatchSampler(std::span<const int32_t> tokens, int64_t sequence, uint64_t seed);

  uint64_t samples_per_epoch() const { return windows_; }
  // Writes `sequence` ids, and for each its successor as the target.
  void sample(uint64_t index, std::span<int32_t> ids, std::span<int32_t> targets) const;
  // The place of the sample's first token.
  uint64_t start_of(uint64_t index) const;

 private:
  std::span<const int32_t> tokens_;
  uint64_t sequence_;
  uint64_t seed_;
  uint64_t windows_;
};

}  // namespace coda::train
