// SPDX-License-Identifier: Apache-2.0
// Text of an epilogue in which pairs take turns: each waits for all that the pair before it makes.
// Where threads move many tensors themselves, the assembler would else load for, and work on, so
// many pairs at once that it spills, however few accumulators there are: it fills whatever
// registers it has; and so it does with an error function, and behind a walk over groups.
// (device/epilogue/fragment_values.cuh has how a value is made to wait.) Invariant: values are what
// they are without it.
#pragma once

#include <string>
#include <vector>

#include "hopper/legalise/space_analysis.h"

namespace coda::hopper {

class PairTurns {
 public:
  explicit PairTurns(const SpaceAnalysis& space);

  bool taken() const { return taken_; }

  // What a pair begins with: its accumulators, and the bits of loaded planes.
  std::string begin_with(const std::string& value) const;
  // What it makes, for an effect.
  void end_with(const std::string& value);

  const char* position() const { return taken_ ? "start" : "at"; }  // the fragment's parameter
  std::string fragment_line() const;
  std::string field_line() const;  // of SubTile
  std::string last_line() const;   // of a pair

 private:
  bool taken_;
  std::vector<std::string> made_;
};

}  // namespace coda::hopper
