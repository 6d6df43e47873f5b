// SPDX-License-Identifier: Apache-2.0
// What a launch costs the host: a tiny program and a block of one row of tiles, against the
// driver's own call with an empty kernel.
#pragma once

#include <fstream>
#include <memory>

#include "gpu/launch/launched_kernel.h"

namespace coda::hopper_memory {

void measure_launches(std::shared_ptr<gpu::GpuState> state, std::ofstream& json);

}  // namespace coda::hopper_memory
