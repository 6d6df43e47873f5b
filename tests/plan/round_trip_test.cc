// SPDX-License-Identifier: Apache-2.0
// A hand-written program is a graph like any other: lifted, differentiated or not, and compiled, it
// comes back as a program of the same kind that computes the same.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

#include "coda/compile.h"
#include "plan/plan_evaluator.h"
#include "program/lift.h"

namespace coda {
namespace {

Program example(const std::string& name) {
  std::ifstream file(std::string(CODA_SOURCE_DIR) + "/examples/programs/" + name + ".coda");
  std::stringstream content;
  content << file.rdbuf();
  return parse_program(content.str());
}

struct RoundTrip {
  Program program;
  Graph graph;
  CompileRequest request;
  Plan plan;
};

// Lifts an example and compiles what it stores in dense tensors.
void compile_lifted(const std::string& name, RoundTrip& trip, const DimValues& sizes) {
  trip.program = example(name);
  program::LiftedTensors tensors;
  program::lift(trip.program, trip.graph, tensors);
  for (const Step& step : trip.program.steps) {
    if (step.kind != StepKind::store_tile && step.kind != StepKind::store_vector) continue;
    const std::string& stored = trip.program.tensors[static_cast<size_t>(step.tensor)].name;
    trip.request.outputs.push_back({stored, tensors.values.at(stored)});
  }
  CompileOptions options;
  options.sizes = sizes;
  trip.plan = compile(trip.graph, trip.request, options).plan;
}

TEST(RoundTrip, EachProductProgramComesBackAsOneProductProgram) {
  const DimValues sizes{{"M", 70}, {"D", 24}, {"I", 40}, {"N", 30}, {"K", 20}};
  for (const char* name : {"out_projection", "gate_up_forward", "gate_up_concatenated",
                           "gate_up_backward", "norm_backward"}) {
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
      const auto& theirs = expected.at(output.name);
      ASSERT_EQ(ours.size(), theirs.size());
      for (size_t i = 0; i < ours.size(); ++i) {
        ASSERT_NEAR(ours[i], theirs[i], 1e-11 * (1 + std::abs(theirs[i])))
            << output.name << " " << i;
      }
    }
  }
}

}  // namespace
}  // namespace coda
