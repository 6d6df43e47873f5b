// SPDX-License-Identifier: Apache-2.0
// One random graph of all builders, compiled, run in float64 program by program and on the CPU
// backend, against the graph as it was written.
#pragma once

#include "coda/error.h"
#include "cpu/plan_run.h"
#include "plan/any_graph.h"
#include "plan/plan_evaluator.h"

namespace coda {

// What went wrong, "" if nothing did.
inline std::string problem_of_any_graph(uint64_t seed) {
  try {
    AnyGraph any(seed);
    const Block& b = any.block;
    const DimValues sizes = any.sizes();
    CompileOptions options;
    options.sizes = sizes;
    options.objective = seed % 2 == 0 ? Objective::memory : Objective::speed;
    options.fuse = seed % 8 != 3;
    if (seed % 4 == 1) options.loss_rows = 64;
    const Plan plan = compile(b.graph, b.request, options).plan;
    Values given = any.inputs();
    Values expected = plain_values(b.graph, b.request, given, sizes);
    for (const GradientRequest& g : b.request.gradients) {
      if (!g.accumulate) continue;
      std::vector<double>& before = given[g.name];
      for (double& x : expected.at(g.name))
        x += before.emplace_back(0.25 + 0.5 * before.size() / 8);
    }
    // `limit`: of the error's norm over that of the value, or over 1 an element.
    const auto differs = [&](const auto& results, double limit) -> std::string {
      for (const auto& [name, value] : expected) {
        double error = 0;
        double norm = 0;
        const std::vector<double> got = results(name);
        for (size_t i = 0; i < value.size(); ++i) {
          error += (got[i] - value[i]) * (got[i] - value[i]);
          norm += value[i] * value[i] + 1e-4;
        }
        if (!(error <= limit * limit * norm)) {
          return name + " differs by " + std::to_string(std::sqrt(error / norm));
        }
      }
      return "";
    };
    PlanEvaluator evaluator(plan, sizes);
    evaluator.values = given;
    evaluator.run(plan.forward);
    evaluator.forget_temporaries();
    evaluator.run(plan.backward);
    const auto exact = [&](const std::string& name) { return evaluator.values.at(name); };
    std::string problem = differs(exact, 1e-9);
    if (!problem.empty()) return "the plan: " + problem;
    const Tensors tensors = run(plan, sizes, given, 2);
    // A product with an operand of 16 bits rounds the other one.
    bool single = true;
    for (int id = 0; id < b.graph.size(); ++id)
      single = single && b.graph.node(id).dtype != DType::bf16;
    const auto found = [&](const std::string& name) { return tensors.get(name); };
    problem = differs(found, single ? 2e-4 : 5e-2);
    return problem.empty() ? "" : "on the CPU: " + problem;
  } catch (const std::exception& error) {
    return error.what();
  }
}

}  // namespace coda
