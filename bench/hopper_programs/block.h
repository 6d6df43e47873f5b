// SPDX-License-Identifier: Apache-2.0
// A whole LLaMA block without attention, as its compiled plan runs it, against the products inside
// it alone on cuBLAS, in the order in which the plan has them.
#pragma once

#include <fstream>
#include <memory>

#include "hopper/launched_kernel.h"
#include "measure/gpu_timer.h"

namespace coda::hopper_programs {

struct BlockOptions {
  int64_t hidden = 2048;
  int64_t mlp = 5632;
  bool backward = false;
  double seconds = 1.2;  // sustained, each
};

// Prints a line, and writes a JSON object a candidate.
void measure_block(std::shared_ptr<hopper::HopperState> state, const BlockOptions& options,
                   measure::Timer& timer, std::ofstream& json);

}  // namespace coda::hopper_programs
