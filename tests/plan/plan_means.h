// SPDX-License-Identifier: Apache-2.0
// Whether a plan computes what its block's graph means, in float64.
#pragma once

#include <gtest/gtest.h>

#include <cmath>

#include "plan/plain_graph.h"
#include "plan/plan_evaluator.h"

namespace coda {

// Runs the plan with what each program may see and nothing else. Every output and gradient has a
// relative error, by the Euclidean norm, below `bound`.
inline void expect_plan_means(const Block& block, const Plan& plan, const DimValues& sizes,
                              const Values& inputs, double bound = 1e-11) {
  PlanEvaluator evaluator(plan, sizes);
  evaluator.values = inputs;
  evaluator.run(plan.forward);
  evaluator.forget_temporaries();
  evaluator.run(plan.backward);
  for (const auto& [name, wanted] : plain_values(block.graph, block.request, inputs, sizes)) {
    ASSERT_TRUE(evaluator.values.contains(name)) << name;
    EXPECT_LT(std::sqrt(squared_error(evaluator.values.at(name), wanted)), bound) << name;
  }
}

}  // namespace coda
