// SPDX-License-Identifier: Apache-2.0
// What is timed, and its times in each regime (gpu_timer.h). Every time is a median with its 10th
// and 90th percentiles, so that a figure never stands without its spread.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace coda::measure {

struct Spread {
  double median_ms = 0;
  double low_ms = 0;   // 10th percentile
  double high_ms = 0;  // 90th percentile
  double mhz = 0;      // the SMs' clock meanwhile, median; 0: not read
};
Spread spread(std::vector<double> samples);

struct Candidate {
  std::string name;
  std::function<void(unsigned set)> launch;
  // Of tensors, that `launch` goes through; if they are given, the calls of a burst on a GPU may be
  // captured into a graph, so that what the host does between two launches is not timed.
  unsigned sets = 0;
  Spread interleaved{};
  Spread cool{};
  Spread sustained{};
  double watts = 0;  // in the sustained regime
};

// Its name and the regimes in which it has been timed: {"candidate": ..., "sustained_ms": ...}.
nlohmann::ordered_json to_json(const Candidate& candidate);

// "1.043 (sustained)  1.020 (cool)": its time over another's, in the regimes in which both have
// been timed.
std::string ratios(const Candidate& candidate, const Candidate& to);

}  // namespace coda::measure
