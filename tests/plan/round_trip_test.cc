// SPDX-License-Identifier: Apache-2.0
// A hand-written program is a graph like any other: lifted, differentiated or not, and compiled, it
// comes back as a program of the same kind that computes the same; so do random programs with their
// finalizers, whatever programs they come back as.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "coda/compile.h"
#include "coda/error.h"
#include "coda/lift.h"
#include "plan/plan_evaluator.h"
#include "program/library_programs.h"
#include "program/random_program.h"

namespace coda {
namespace {

using Values = std::map<std::string, std::vector<double>>;

struct RoundTrip {
  Program program;
  Graph graph;
  CompileRequest request;
  Plan plan;
};

// Lifts a program of the library and compiles what it stores in dense tensors.
void compile_lifted(const std::string& name, RoundTrip& trip, const DimValues& sizes) {
  trip.program = tests::library_program(name);
  LiftedTensors tensors;
  lift(trip.program, trip.graph, tensors);
  for (const Step& step : trip.program.steps) {
    if (step.kind() != StepKind::store_tile && step.kind() != StepKind::store_vector) continue;
    const std::string& stored = trip.program.tensors[static_cast<size_t>(step.tensor())].name;
    trip.request.outputs.push_back({"out " + stored, tensors.values.at(stored)});
  }
  CompileOptions options;
  options.sizes = sizes;
  trip.plan = compile(trip.graph, trip.request, options).plan;
}

TEST(RoundTrip, EachProductProgramComesBackAsOneProductProgram) {
  const DimValues sizes{{"M", 70}, {"N", 30}, {"K", 20}};
  for (const char* name :
       {"residual_norm", "swiglu", "swiglu_joined", "swiglu_backward", "norm_backward_joined"}) {
    SCOPED_TRACE(name);
    RoundTrip trip;
    compile_lifted(name, trip, sizes);
    int products = 0;
    for (const PlanStep& step : trip.plan.forward) products += step.role == StepRole::gemm ? 1 : 0;
    EXPECT_EQ(products, 1);

    std::mt19937_64 random(3);
    std::normal_distribution<double> normal;
    std::map<std::string, std::vector<double>> inputs;
    for (int id = 0; id < trip.graph.size(); ++id) {
      const Node& n = trip.graph.node(id);
      if (n.op != Op::input) continue;
      auto& data = inputs[n.name];
      data.resize(static_cast<size_t>(n.shape.rows.evaluate(sizes) * n.shape.cols.evaluate(sizes)));
      for (double& x : data) x = normal(random);
    }
    const auto expected = program::evaluate(trip.program, sizes, inputs);
    PlanEvaluator evaluator(trip.plan, sizes);
    evaluator.values = inputs;
    evaluator.run(trip.plan.forward);
    for (const NamedValue& output : trip.request.outputs) {
      const auto& ours = evaluator.values.at(output.name);
      const auto& theirs = expected.at(output.name.substr(4));
      ASSERT_EQ(ours.size(), theirs.size());
      for (size_t i = 0; i < ours.size(); ++i) {
        ASSERT_NEAR(ours[i], theirs[i], 1e-11 * (1 + std::abs(theirs[i])))
            << output.name << " " << i;
      }
    }
  }
}

// Graphs do not know the two results of log_sum_exp one by one.
bool has_graph(const Program& program) {
  for (const Step& step : program.steps) {
    if (step.kind() == StepKind::combine && step.partial() == PartialKind::log_sum_exp)
      return false;
  }
  return true;
}

// What compile or lift has no plan for it must refuse with an Error; the plans of the others store
// what the programs store. A tensor that is stored in place is an input and an output here.
TEST(RoundTrip, RandomProgramsComeBackAsPlansThatComputeTheSame) {
  constexpr uint64_t kSeeds = 200;
  int same = 0;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const tests::RandomProgram random = tests::random_program(seed);
    Values inputs = tests::random_inputs(random.program, random.sizes, seed);
    Values expected = program::evaluate(random.program, random.sizes, inputs);
    const bool finalized = random.finalizer && has_graph(*random.finalizer);
    if (finalized) {
      Values known = expected;
      for (const auto& [name, data] : tests::random_inputs(*random.finalizer, random.sizes, seed)) {
        if (known.try_emplace(name, data).second) inputs[name] = data;
      }
      for (auto& [name, data] : program::evaluate(*random.finalizer, random.sizes, known))
        expected[name] = data;
    }
    Graph graph;
    CompileRequest request;
    Plan plan;
    try {
      LiftedTensors tensors;
      lift(random.program, graph, tensors);
      if (finalized) lift(*random.finalizer, graph, tensors);
      for (const auto& [name, value] : tensors.values) {
        if (expected.contains(name)) request.outputs.push_back({"out " + name, value});
      }
      if (request.outputs.empty()) continue;  // partials alone
      CompileOptions options;
      options.sizes = random.sizes;
      plan = compile(graph, request, options).plan;
    } catch (const InternalError& error) {
      FAIL() << error.what() << "\n" << text(random.program);
    } catch (const Error& error) {
      printf("seed %d is refused: %s\n", static_cast<int>(seed), error.what());
      continue;
    }
    PlanEvaluator evaluator(plan, random.sizes);
    evaluator.values = inputs;
    ASSERT_NO_THROW(evaluator.run(plan.forward)) << text(random.program);
    for (const NamedValue& output : request.outputs) {
      ASSERT_TRUE(evaluator.values.contains(output.name))
          << output.name << "\n"
          << text(random.program) << text(plan, random.sizes, cpu_rates());
      const auto& ours = evaluator.values.at(output.name);
      const auto& theirs = expected.at(output.name.substr(4));
      ASSERT_EQ(ours.size(), theirs.size()) << output.name;
      for (size_t i = 0; i < ours.size(); ++i) {
        ASSERT_NEAR(ours[i], theirs[i], 1e-9 * (1 + std::abs(theirs[i])))
            << output.name << " " << i << "\n"
            << text(random.program);
      }
    }
    ++same;
  }
  printf("%d of %d programs came back\n", same, static_cast<int>(kSeeds));
  EXPECT_GT(same, static_cast<int>(kSeeds * 2 / 3));
}

}  // namespace
}  // namespace coda
