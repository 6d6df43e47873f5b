// SPDX-License-Identifier: Apache-2.0
// Every graph that the builders accept compiles and runs. CODA_GRAPH_SEEDS=0-19999 takes as many
// graphs instead of two hundred (docs/numerics.md).
#include "cpu/any_graph_check.h"

#include <gtest/gtest.h>

namespace coda {
namespace {

TEST(AnyGraph, CompilesAndRunsAsItWasWritten) {
  tests::expect_no_problems(seeds_of_any_graphs(), problem_of_any_graph);
}

}  // namespace
}  // namespace coda
