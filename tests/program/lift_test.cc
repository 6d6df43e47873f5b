// SPDX-License-Identifier: Apache-2.0
// A lifted program is the same function: over random programs and their finalizers, the reference
// evaluation of the graph gives what the interpreter of programs gives.
#include "coda/lift.h"

#include <gtest/gtest.h>

#include <cmath>

#include "coda/error.h"
#include "ir/evaluate_graph.h"
#include "program/evaluate.h"
#include "program/random_program.h"

namespace coda::program {
namespace {

// Graphs have groups of constant sizes only, and not the results of log_sum_exp one by one.
bool has_graph(const Program& program) {
  for (const Step& step : program.steps) {
    if (step.kind() == StepKind::reduce_group && !step.shape.cols.is_constant()) return false;
    if (step.kind() == StepKind::combine && step.partial() == PartialKind::log_sum_exp)
      return false;
  }
  return true;
}

// Compares every dense tensor that the programs store. `outputs` are the interpreter's.
int compare(const Graph& graph, const LiftedTensors& lifted, const TensorValues& outputs,
            const TensorValues& inputs, const DimValues& sizes) {
  std::vector<int> roots;
  std::vector<std::string> names;
  for (const auto& [name, value] : lifted.values) {
    if (!outputs.contains(name)) continue;
    roots.push_back(value.id);
    names.push_back(name);
  }
  const std::vector<Matrix> results = coda::evaluate(graph, roots, inputs, sizes);
  for (size_t i = 0; i < roots.size(); ++i) {
    const std::vector<double>& expected = outputs.at(names[i]);
    EXPECT_EQ(results[i].data.size(), expected.size()) << names[i];
    for (size_t e = 0; e < expected.size() && e < results[i].data.size(); ++e) {
      const double scale = 1 + std::fabs(expected[e]);
      EXPECT_NEAR(results[i].data[e] / scale, expected[e] / scale, 1e-9) << names[i] << " at " << e;
      if (::testing::Test::HasFailure()) return 0;
    }
  }
  return static_cast<int>(roots.size());
}

TEST(Lift, RandomProgramsAreTheSameFunctionAsTheirGraph) {
  int programs = 0;
  int finalizers = 0;
  int tensors = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const coda::tests::RandomProgram random = coda::tests::random_program(seed);
    if (!has_graph(random.program)) continue;
    ++programs;
    TensorValues inputs = coda::tests::random_inputs(random.program, random.sizes, seed);
    TensorValues outputs = evaluate(random.program, random.sizes, inputs);
    Graph graph;
    LiftedTensors lifted;
    lift(random.program, graph, lifted);
    if (random.finalizer && has_graph(*random.finalizer)) {
      TensorValues known = outputs;
      for (const auto& [name, values] :
           coda::tests::random_inputs(*random.finalizer, random.sizes, seed)) {
        if (known.try_emplace(name, values).second) inputs[name] = values;
      }
      for (auto& [name, values] : evaluate(*random.finalizer, random.sizes, known))
        outputs[name] = values;
      lift(*random.finalizer, graph, lifted);
      ++finalizers;
    }
    tensors += compare(graph, lifted, outputs, inputs, random.sizes);
    ASSERT_FALSE(HasFailure()) << text(random.program);
  }
  EXPECT_GT(programs, 150);
  EXPECT_GT(finalizers, 20);
  EXPECT_GT(tensors, 500);
}

TEST(Lift, APartialNeedsTheProgramThatMakesIt) {
  Graph graph;
  LiftedTensors lifted;
  EXPECT_THROW(
      lift(parse_program("program f {\n store(r, combine_rows(sum(p[M, N])))\n}"), graph, lifted),
      Error);
}

TEST(Lift, InPlaceStoresReadTheValueBefore) {
  const Program program =
      parse_program("program p {\n store(dw, tile(dw[N, K]) + gemm(g[M, N], x[M, K]))\n}");
  Graph graph;
  LiftedTensors lifted;
  lift(program, graph, lifted);
  lift(program, graph, lifted);
  const TensorValues inputs = {{"dw", {1}}, {"g", {2}}, {"x", {3}}};
  const auto result =
      coda::evaluate(graph, {lifted.values.at("dw").id}, inputs, {{"N", 1}, {"K", 1}, {"M", 1}});
  EXPECT_EQ(result[0].data[0], 1 + 2 * 3 + 2 * 3);
}

}  // namespace
}  // namespace coda::program
