// SPDX-License-Identifier: Apache-2.0
// From short visits, all at the one clock of a hot chip, to the times of long runs, where each
// configuration gets the clock that its own power allows.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "gpu/configure/tuned_rows.h"

namespace coda::table {

// A kernel's configurations by the time that they take when they run for long.
struct SustainedKernel {
  std::vector<gpu::TimedChoice> choices;
  double regret = 0;  // of the model's own choice: the share by which it is slower than the fastest
};

// Of a kernel as json_of has it. `long_run` is the configuration that a long run found the fastest:
// it comes first; empty if there was none.
SustainedKernel sustained(const nlohmann::ordered_json& kernel, const std::string& long_run);

}  // namespace coda::table
