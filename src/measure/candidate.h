// SPDX-License-Identifier: Apache-2.0
// A candidate of a measurement: its name, its times (coda/measure.h) and the function that runs it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "coda/measure.h"

namespace coda::measure {

Spread spread(std::vector<double> samples);

struct Candidate : Timed {
  using Launch = std::function<void(unsigned set)>;
  Candidate() = default;
  Candidate(std::string called, Launch run, unsigned of_tensors = 0)
      : Timed{.name = std::move(called)}, launch(std::move(run)), sets(of_tensors) {}

  Launch launch;
  // Of tensors, that `launch` goes through; if they are given, the calls of a burst on a GPU may be
  // captured into a graph, so that what the host does between two launches is not timed.
  unsigned sets = 0;
};

// "1.043 (sustained)  1.020 (cool)": its time over another's, in the regimes in which both have
// been timed.
std::string ratios(const Timed& timed, const Timed& to);

}  // namespace coda::measure
