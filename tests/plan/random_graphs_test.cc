// SPDX-License-Identifier: Apache-2.0
// The theorem of the method as a property: where every forward operation is tile-local but for
// reductions with finalizers, so is every backward operation. Random graphs, random choices: the
// derived backward has only GEMM programs, tile programs and finalizers, and what they compute,
// each from what it may see, is the gradient of the graph as it was written.
#include <gtest/gtest.h>

#include "base/seeds.h"
#include "plan/plan_means.h"
#include "plan/random_graphs.h"
#include "plan/write/emit.h"

namespace coda {
namespace {

// One legal plan, by chance.
Plan random_plan(const Graph& graph, const CompileRequest& request, const DimValues& sizes,
                 std::mt19937_64& random) {
  Choices choices;
  for (int i = 0; i < 24; ++i) {
    choices.column_factors.push_back(static_cast<ColumnFactor>(random() % 3));
    choices.pinned.push_back(random() % 2 == 0);
  }
  const JointGraph joint = rewrite_jointly(graph, request, choices, true);
  PartitionRequest parts_request;
  parts_request.joint = &joint;
  parts_request.sizes = sizes;
  Partition parts = partition(parts_request);
  for (int id : parts.dropped) {
    if (random() % 3 == 0) parts_request.also_saved.insert(id);
  }
  if (!parts_request.also_saved.empty()) parts = partition(parts_request);
  CompileOptions options;
  options.sizes = sizes;
  return emit(joint, parts, request, options);
}

void expect_theorem(uint64_t seed) {
  // One in ten has partial reductions over several spans.
  RandomGraph random(seed, 0, seed / 5 % 10 == 9);
  // Three of five have an upstream gradient.
  if (seed % 5 == 0) random.seed_constant(0.5);
  if (seed % 5 == 1) random.seed_row_mean();
  const Block& b = random.block;
  const DimValues sizes = random.sizes();
  const Values inputs = random.inputs();
  std::mt19937_64 choices(seed + 1);
  const Plan plan = random_plan(b.graph, b.request, sizes, choices);

  for (const PlanStep& step : plan.backward) {
    ASSERT_NE(step.role, StepRole::opaque) << step.name;
    const Program& program = std::get<Program>(step.work);
    ASSERT_NO_THROW(verify(program)) << text(program);
  }
  expect_plan_means(b, plan, sizes, inputs, 1e-9);
}

class RandomGraphs : public testing::TestWithParam<int> {};

TEST_P(RandomGraphs, BackwardIsTileLocalAndEqualsThePlainGradient) {
  constexpr int kGraphs = tests::fewer_if_sanitized(125);
  const uint64_t first = 1 + static_cast<uint64_t>(GetParam() * kGraphs);
  for (uint64_t seed = first; seed < first + kGraphs; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    ASSERT_NO_THROW(expect_theorem(seed));
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Theorem, RandomGraphs, testing::Range(0, 8));

}  // namespace
}  // namespace coda
