// SPDX-License-Identifier: Apache-2.0
// Emits dependencies that make the pairs of an epilogue take turns: each pair waits for a value of
// the previous one. Without this the assembler interleaves the loads and work of so many pairs that
// registers spill.
// Two cases need it. If threads move many tensors themselves, in epilogues with an error function,
// and after a walk over groups, every pair waits for all of the previous one, whatever the number
// of accumulators. In large tiles that stage many planes, only the first fragments take turns
// (before epilogues have consumed accumulators; takes_turns in device/layout/space.cuh), and only
// the first load waits for a store. device/epilogue/fragment_values.cuh implements the waiting.
// Invariant: turns do not change values.
#pragma once

#include <string>
#include <vector>

#include "gpu/legalise/space_analysis.h"

namespace coda::gpu {

class PairTurns {
 public:
  PairTurns(const SpaceAnalysis& space, const device::GemmConfig& config);

  // What a pair starts with: its accumulators, or the bits of loaded planes.
  std::string begin_with(const std::string& value) const;
  std::string begin_with_load(const std::string& bits);
  // Records a value that the pair computes for an effect.
  void end_with(const std::string& value);

  const char* position() const { return all_ ? "start" : "at"; }  // the fragment's parameter
  std::string fragment_line() const;
  std::string field_line() const;  // the field in SubTile
  std::string last_line() const;   // the last line of a pair

 private:
  const bool all_;
  uint32_t first_load_for_;  // stored planes; 0: no load waits, or one already does
  std::vector<std::string> made_;
};

}  // namespace coda::gpu
