// SPDX-License-Identifier: Apache-2.0
// Every graph that the builders accept compiles and runs. CODA_GRAPH_SEEDS=0-19999 takes as many
// graphs instead of two hundred (docs/numerics.md).
#include "cpu/any_graph_check.h"

#include <gtest/gtest.h>

namespace coda {
namespace {

TEST(AnyGraph, CompilesAndRunsAsItWasWritten) {
  const auto [first, last] = seeds_of_any_graphs();
  int wrong = 0;
  for (uint64_t seed = first; seed <= last && wrong < 20; ++seed) {
    const std::string problem = problem_of_any_graph(seed);
    if (problem.empty()) continue;
    ADD_FAILURE() << "seed " << seed << ": " << problem;
    ++wrong;
  }
}

}  // namespace
}  // namespace coda
