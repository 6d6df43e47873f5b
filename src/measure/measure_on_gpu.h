// SPDX-License-Identifier: Apache-2.0
// Implements coda/measure.h on a GPU: compares a program, or a whole plan, with its GEMMs alone on
// cuBLAS (the fastest of the first 16 algorithms that its heuristics propose) in the regimes of
// gpu_timer.h.
#pragma once

#include <vector>

#include "coda/measure.h"
#include "measure/gpu.h"

namespace coda::measure {

// Sustained, of each candidate; the fastest of them are then timed as GpuTiming says.
constexpr double kScreenSeconds = 0.12;

// Times all candidates; the first is what the chip is heated with.
void time_on_gpu(Timer& timer, const std::vector<Candidate*>& candidates,
                 const MeasureOptions& options);

Measured measure_program_on_gpu(const Program& program, const DimValues& sizes,
                                const MeasureOptions& options);
Measured measure_plan_on_gpu(const Compiled& compiled, const DimValues& sizes,
                             const MeasureOptions& options);

}  // namespace coda::measure
