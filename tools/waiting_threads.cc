// SPDX-License-Identifier: Apache-2.0
// Sets the environment variable and executes the program again, because OpenMP reads it before
// main.
#include "waiting_threads.h"

#include <unistd.h>

#include <cstdlib>

namespace coda::tools {

void let_waiting_threads_sleep(char** argv) {
  if (std::getenv("GOMP_SPINCOUNT") != nullptr || std::getenv("OMP_WAIT_POLICY") != nullptr) return;
  // If the variable or exec fails, the program runs unchanged: slower on a busy machine, but
  // correct.
  if (setenv("GOMP_SPINCOUNT", "1000", 0) == 0) execv("/proc/self/exe", argv);
}

}  // namespace coda::tools
