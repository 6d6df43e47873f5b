// SPDX-License-Identifier: Apache-2.0
// Three regimes, because a GPU at its power limit has no single speed:
//   sustained    each candidate alone for over a second on a hot chip: its own clock
//   cool         bursts of 2 ms after 40 ms pauses, in random order: the full clock
//   interleaved  short bursts back to back in random order: one clock for all
// Invariant: buffers rotate, so that no run finds its operands in L2.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bench/hopper_table/driver.h"
#include "bench/hopper_table/power.h"

namespace coda::hopper_table {

struct Spread {
  double median_ms = 0;
  double low_ms = 0;   // 10th percentile
  double high_ms = 0;  // 90th percentile
};

struct Candidate {
  std::string name;
  std::function<void(unsigned set)> launch;
  Spread interleaved;
  Spread cool;
  Spread sustained;
  double clock_mhz = 0;  // the next two in the sustained regime
  double watts = 0;
};

class Timer {
 public:
  Timer(const Device& device, const PowerMeter& power);

  void interleaved(std::vector<Candidate*> candidates, int rounds, double burst_ms);
  void cool(std::vector<Candidate*> candidates, int rounds);
  // Heats the chip with the first candidate, then gives each `seconds`, `repetitions` times.
  void sustained(std::vector<Candidate*> candidates, double seconds, int repetitions,
                 double heat_seconds);

 private:
  void enqueue(Candidate& candidate, int calls);
  double burst(Candidate& candidate, int calls);
  int calls_for(Candidate& candidate, double ms);

  const Device& device_;
  const PowerMeter& power_;
  Event start_;
  Event stop_;
  unsigned set_ = 0;
};

}  // namespace coda::hopper_table
