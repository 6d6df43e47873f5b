// SPDX-License-Identifier: Apache-2.0
// Every graph that the builders accept compiles and runs. CODA_RANDOM_GRAPHS=20000 takes as many
// graphs instead of a few hundred (docs/numerics.md).
#include "cpu/any_graph_check.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace coda {
namespace {

TEST(AnyGraph, CompilesAndRunsAsItWasWritten) {
  const char* wanted = std::getenv("CODA_RANDOM_GRAPHS");
  const int count = wanted == nullptr ? 200 : std::atoi(wanted);
  int wrong = 0;
  for (int seed = 0; seed < count; ++seed) {
    const std::string problem = problem_of_any_graph(static_cast<uint64_t>(seed));
    if (problem.empty()) continue;
    ADD_FAILURE() << "seed " << seed << ": " << problem;
    if (++wrong == 20) break;
  }
}

}  // namespace
}  // namespace coda
