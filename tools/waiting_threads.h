// SPDX-License-Identifier: Apache-2.0
// Limits how long waiting OpenMP threads keep their cores busy.
#pragma once

namespace coda::tools {

// OpenMP's threads spin while they wait: by default for milliseconds. If other processes need the
// cores, the thread that is waited for cannot run meanwhile. So this command's threads spin for
// about a microsecond and then sleep (GOMP_SPINCOUNT), unless the user has set it or
// OMP_WAIT_POLICY. The runtime reads its environment once, before main, so the process executes
// itself again: call this first. Measured with two trainings on two cores: 34 s became 5 s; a
// single training is as fast as before.
void let_waiting_threads_sleep(char** argv);

}  // namespace coda::tools
