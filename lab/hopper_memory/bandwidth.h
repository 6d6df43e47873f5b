// SPDX-License-Identifier: Apache-2.0
// Bytes a program moves by the time it takes, against a copy on the device of as many bytes in the
// same run.
#pragma once

#include <fstream>
#include <memory>
#include <vector>

#include "cases.h"
#include "gpu/launch/launched_kernel.h"
#include "measure/gpu_timer.h"

namespace coda::hopper_memory {

// Prints a line a case, and writes a JSON object. Returns the milliseconds of each. `in_graphs`:
// calls and copies are captured into CUDA graphs, as a training step is, instead of launched one by
// one.
std::vector<double> measure_bandwidth(std::shared_ptr<gpu::GpuState> state,
                                      const std::vector<Case>& cases, double seconds,
                                      bool in_graphs, measure::Timer& timer, std::ofstream& json);

}  // namespace coda::hopper_memory
