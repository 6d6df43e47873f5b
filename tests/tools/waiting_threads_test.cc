// SPDX-License-Identifier: Apache-2.0
// The command's threads wait asleep, on a machine that others use too, unless the user says how
// they wait. The reference is what OpenMP's runtime itself says it read (OMP_DISPLAY_ENV).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "tools/run_command.h"

namespace coda {
namespace {

using testing::HasSubstr;
using testing::Not;

// What the runtime of the process that does the work says: the last to be started.
std::string waiting_of(std::map<std::string, std::string> environment) {
  unsetenv("OMP_WAIT_POLICY");  // which the runner of the tests sets
  unsetenv("GOMP_SPINCOUNT");
  environment["OMP_DISPLAY_ENV"] = "verbose";
  const CommandResult result = run_coda({"--version"}, {.environment = environment});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("coda "));
  const size_t last = result.err.rfind("OPENMP DISPLAY ENVIRONMENT BEGIN");
  return last == std::string::npos ? "" : result.err.substr(last);
}

TEST(WaitingThreads, SleepSoonUnlessTheUserSaysHowTheyWait) {
  EXPECT_THAT(waiting_of({}), HasSubstr("GOMP_SPINCOUNT = '1000'"));
  EXPECT_THAT(waiting_of({{"GOMP_SPINCOUNT", "5000"}}), HasSubstr("GOMP_SPINCOUNT = '5000'"));
  EXPECT_THAT(waiting_of({{"OMP_WAIT_POLICY", "active"}}),
              testing::AllOf(HasSubstr("OMP_WAIT_POLICY = 'ACTIVE'"),
                             Not(HasSubstr("GOMP_SPINCOUNT = '1000'"))));
}

}  // namespace
}  // namespace coda
