// SPDX-License-Identifier: Apache-2.0
// Three regimes, because a GPU at its power limit has no single speed:
//   sustained    each candidate alone for over a second on a hot chip: its own clock
//   cool         bursts of 2 ms after 40 ms pauses, in random order: the full clock
//   interleaved  short bursts back to back in random order: one clock for all
// A burst's calls run from a CUDA graph where a candidate says how many sets of tensors it has, and
// a burst has room for all: launched one by one, they would stand 1 to 3 us apart. A burst
// behind a pause begins when it is enqueued, if there is a clock: the host's first launch is not
// timed.
// Invariant: buffers rotate (`launch` takes a set's number), so that no run finds its operands in
// L2.
#pragma once

#include <chrono>
#include <map>
#include <vector>

#include "gpu/launch/driver_api.h"
#include "measure/candidate.h"
#include "measure/power_meter.h"
#include "measure/sm_clock.h"

namespace coda::measure {

double seconds_since(std::chrono::steady_clock::time_point start);

class Timer {
 public:
  // Candidates launch on `stream`, in the calling thread's context. Clocks are read by `clock`, on
  // the same stream; without it, in the sustained regime, from the driver.
  Timer(gpu::DriverHandle stream, const PowerMeter& power, SmClock* clock = nullptr);
  ~Timer();
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  void interleaved(std::vector<Candidate*> candidates, int rounds, double burst_ms);
  void cool(std::vector<Candidate*> candidates, int rounds);
  // Heats the chip with the first candidate, then gives each `seconds`, `repetitions` times.
  void sustained(std::vector<Candidate*> candidates, double seconds, int repetitions,
                 double heat_seconds);

 private:
  struct Burst;
  struct Samples;
  using Bursts = std::map<Candidate*, Burst>;
  // Of about `ms` milliseconds each.
  Bursts bursts_of(const std::vector<Candidate*>& candidates, double ms);
  Burst burst_of(Candidate& candidate, double ms);
  void enqueue(const Burst& burst);
  double run(const Burst& burst);  // milliseconds of a call
  void sample(Samples& samples, const Burst& burst);
  double elapsed_ms() const;  // waits for the last burst

  gpu::DriverHandle stream_;
  const PowerMeter& power_;
  SmClock* clock_ = nullptr;
  gpu::DriverHandle start_ = nullptr;
  gpu::DriverHandle stop_ = nullptr;
  unsigned set_ = 0;
};

}  // namespace coda::measure
