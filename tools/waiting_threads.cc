// SPDX-License-Identifier: Apache-2.0
#include "waiting_threads.h"

#include <unistd.h>

#include <cstdlib>

namespace coda::tools {

void let_waiting_threads_sleep(char** argv) {
  if (std::getenv("GOMP_SPINCOUNT") != nullptr || std::getenv("OMP_WAIT_POLICY") != nullptr) return;
  // What cannot be set or started again runs as it is: slower on a busy machine, and as right.
  if (setenv("GOMP_SPINCOUNT", "1000", 0) == 0) execv("/proc/self/exe", argv);
}

}  // namespace coda::tools
