// SPDX-License-Identifier: Apache-2.0
// How long a thread that waits for others keeps its core busy.
#pragma once

namespace coda::tools {

// OpenMP's threads spin while they wait: by default for milliseconds, and where another process
// wants the core, the thread waited for cannot run meanwhile. So the command's threads spin for
// about a microsecond, then sleep: GOMP_SPINCOUNT, unless the user has set it or OMP_WAIT_POLICY.
// The runtime reads its environment once, before main, so the process is started again in place:
// call this first. Measured with two trainings at once on two cores: 34 s became 5; one alone takes
// as long as before.
void let_waiting_threads_sleep(char** argv);

}  // namespace coda::tools
