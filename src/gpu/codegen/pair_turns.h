// SPDX-License-Identifier: Apache-2.0
// Text of an epilogue in which pairs take turns: each waits for what the pair before it makes. The
// assembler fills whatever registers it has: it would else load for, and work on, so many pairs at
// once that it spills. Where threads move many tensors themselves, with an error function, and
// behind a walk over groups, that is so however few accumulators there are, and a pair waits for
// all of the one before it; where large tiles stage many planes, only in their first fragments,
// before epilogues have consumed accumulators (device/layout/space.cuh: takes_turns), and only its
// first load waits, for a store. (device/epilogue/fragment_values.cuh has how a value is made to
// wait.) Invariant: values are what they are without it.
#pragma once

#include <string>
#include <vector>

#include "gpu/legalise/space_analysis.h"

namespace coda::gpu {

class PairTurns {
 public:
  PairTurns(const SpaceAnalysis& space, const device::GemmConfig& config);

  // What a pair begins with: its accumulators, and the bits of loaded planes.
  std::string begin_with(const std::string& value) const;
  std::string begin_with_load(const std::string& bits);
  // What it makes, for an effect.
  void end_with(const std::string& value);

  const char* position() const { return all_ ? "start" : "at"; }  // the fragment's parameter
  std::string fragment_line() const;
  std::string field_line() const;  // of SubTile
  std::string last_line() const;   // of a pair

 private:
  const bool all_;
  uint32_t first_load_for_;  // planes that are stored; 0: no load waits, or one does already
  std::vector<std::string> made_;
};

}  // namespace coda::gpu
