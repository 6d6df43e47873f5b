// SPDX-License-Identifier: Apache-2.0
// Times candidates on the host's processor. Candidates take turns in random order, so a disturbance
// affects all of them.
#pragma once

#include <vector>

#include "measure/candidate.h"

namespace coda::measure {

// Fills Candidate::interleaved. Each runs twice before; `launch` must return when the work is done.
void time_on_host(const std::vector<Candidate*>& candidates, const CpuTiming& options);

// "AMD EPYC 9355, 2 threads": the model that the system names.
std::string processor_text(int threads);

}  // namespace coda::measure
