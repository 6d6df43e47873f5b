// SPDX-License-Identifier: Apache-2.0
// Plans of whole blocks, run in float64 program by program, against the graph differentiated as it
// was written and run op by op: equal for every choice that the compiler may make.
#include "coda/compile.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "grad/differentiate.h"
#include "ir/evaluate_graph.h"
#include "ir/rebuild.h"
#include "ir/verify_graph.h"
#include "plan/blocks.h"
#include "plan/plan_evaluator.h"
#include "rewrite/joint.h"

namespace coda {
namespace {

using Build = std::function<void(Block&)>;

struct Expected {
  std::map<std::string, std::vector<double>> values;
};

// Outputs and gradients of the plain graph by the reference evaluator.
Expected reference(const Block& b, const std::map<std::string, std::vector<double>>& inputs,
                   const DimValues& sizes) {
  Graph graph;
  clone(b.graph, graph);
  std::vector<Seed> seeds;
  std::vector<int> wanted;
  for (const SeededOutput& s : b.request.seeds)
    seeds.push_back({s.output.id, graph.value(s.cotangent.id)});
  for (const GradientRequest& g : b.request.gradients) wanted.push_back(g.input.id);
  const std::vector<Value> gradients = differentiate(graph, seeds, wanted);
  std::vector<int> roots;
  for (const NamedValue& o : b.request.outputs) roots.push_back(o.value.id);
  for (const Value& g : gradients) roots.push_back(g.id);
  const std::vector<Matrix> values = evaluate(graph, roots, inputs, sizes);
  Expected expected;
  for (size_t i = 0; i < b.request.outputs.size(); ++i)
    expected.values[b.request.outputs[i].name] = values[i].data;
  for (size_t i = 0; i < b.request.gradients.size(); ++i) {
    expected.values[b.request.gradients[i].name] = values[b.request.outputs.size() + i].data;
  }
  return expected;
}

double relative_error(const std::vector<double>& a, const std::vector<double>& b) {
  double error = 0;
  double norm = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    error += (a[i] - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  return std::sqrt(error / norm);
}

void expect_equal(const Block& b, const Plan& plan, const DimValues& sizes, uint64_t seed) {
  auto inputs = random_inputs(b.graph, sizes, seed);
  const Expected expected = reference(b, inputs, sizes);
  PlanEvaluator evaluator(plan, sizes);
  evaluator.values = inputs;
  std::map<std::string, std::vector<double>> before;
  for (const GradientRequest& g : b.request.gradients) {
    if (!g.accumulate) continue;
    before[g.name] = std::vector<double>(expected.values.at(g.name).size(), 0.5);
    evaluator.values[g.name] = before[g.name];
  }
  evaluator.run(plan.forward);
  evaluator.forget_temporaries();
  evaluator.run(plan.backward);
  for (const auto& [name, value] : expected.values) {
    std::vector<double> wanted = value;
    if (before.contains(name)) {
      for (double& x : wanted) x += 0.5;
    }
    ASSERT_TRUE(evaluator.values.contains(name)) << name;
    EXPECT_LT(relative_error(evaluator.values.at(name), wanted), 1e-11) << name;
  }
}

const std::map<std::string, Build>& blocks() {
  static const std::map<std::string, Build> all{
      {"llama_block", [](Block& b) { llama_block(b); }},
      {"llama_model_tied", [](Block& b) { llama_model(b, 2, true); }},
      {"llama_model_untied", [](Block& b) { llama_model(b, 2, false); }},
      {"gpt2_model", [](Block& b) { gpt2_model(b, 2); }},
      {"parallel_block", [](Block& b) { parallel_block(b); }},
      {"sandwich_block", [](Block& b) { sandwich_block(b); }},
  };
  return all;
}

class EveryBlock : public testing::TestWithParam<std::string> {};

TEST_P(EveryBlock, PlanOfEveryChoiceEqualsTheGraph) {
  for (int fold = 0; fold < 2; ++fold) {
    for (int pin = 0; pin < 2; ++pin) {
      for (Objective objective : {Objective::memory, Objective::speed}) {
        Block b;
        blocks().at(GetParam())(b);
        CompileOptions options;
        options.sizes = {{"M", 6}};
        options.objective = objective;
        options.fold.assign(16, fold != 0);
        options.pin.assign(16, pin != 0);
        SCOPED_TRACE("fold " + std::to_string(fold) + " pin " + std::to_string(pin));
        expect_equal(b, compile(b.graph, b.request, options).plan, options.sizes, 1);
      }
    }
  }
}

TEST_P(EveryBlock, SearchedAndUnfusedPlansEqualTheGraph) {
  for (bool fuse : {true, false}) {
    for (Objective objective : {Objective::memory, Objective::speed}) {
      Block b;
      blocks().at(GetParam())(b);
      CompileOptions options;
      options.sizes = {{"M", 6}};
      options.objective = objective;
      options.fuse = fuse;
      SCOPED_TRACE(fuse ? "fused" : "unfused");
      expect_equal(b, compile(b.graph, b.request, options).plan, options.sizes, 2);
    }
  }
}

TEST_P(EveryBlock, RewrittenGraphsAreWellFormed) {
  Block b;
  blocks().at(GetParam())(b);
  const JointGraph joint = rewrite_jointly(b.graph, b.request, {}, true);
  std::vector<int> roots = joint.outputs;
  roots.insert(roots.end(), joint.gradients.begin(), joint.gradients.end());
  EXPECT_NO_THROW(verify(*joint.graph, roots));
  // A value that the verifier must refuse: a row sum that claims to be as wide as its operand.
  Node wrong;
  wrong.op = Op::row_sum;
  wrong.shape = {"M", 5};
  wrong.operands = {b.graph.input("extra", {"M", 4}).id};
  const int id = b.graph.intern(std::move(wrong));
  EXPECT_THROW(verify(b.graph, {id}), InternalError);
}

TEST_P(EveryBlock, SavedTensorsMayBeOverwrittenWhereTheyAreReadLast) {
  Block b;
  blocks().at(GetParam())(b);
  CompileOptions options;
  options.sizes = {{"M", 6}};
  const size_t separate = compile(b.graph, b.request, options).plan.tensors.size();
  options.overwrite_saved = true;
  const Plan plan = compile(b.graph, b.request, options).plan;
  EXPECT_LT(plan.tensors.size(), separate);
  expect_equal(b, plan, options.sizes, 4);
}

TEST_P(EveryBlock, GradientsAreAddedToWhereAsked) {
  Block b;
  blocks().at(GetParam())(b);
  for (GradientRequest& g : b.request.gradients) g.accumulate = true;
  CompileOptions options;
  options.sizes = {{"M", 6}};
  expect_equal(b, compile(b.graph, b.request, options).plan, options.sizes, 3);
}

INSTANTIATE_TEST_SUITE_P(Compile, EveryBlock,
                         testing::Values("llama_block", "llama_model_tied", "llama_model_untied",
                                         "gpt2_model", "parallel_block", "sandwich_block"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace coda
