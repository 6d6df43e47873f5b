// SPDX-License-Identifier: Apache-2.0
// How long a process takes from a context to the first results: run it twice, the first time with
// an empty cache.
#pragma once

#include <fstream>
#include <memory>

#include "gpu/launch/launched_kernel.h"

namespace coda::hopper_memory {

// Before anything else of the process has compiled or found a kernel.
void measure_ready(std::shared_ptr<gpu::GpuState> state, std::ofstream& json);

}  // namespace coda::hopper_memory
