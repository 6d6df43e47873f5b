// SPDX-License-Identifier: Apache-2.0
// Plans of whole blocks, run in float64 program by program, against the graph differentiated as it
// was written and run op by op: equal for every choice that the compiler may make.
#include "plan/search/search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "ir/evaluate_graph.h"
#include "ir/verify_graph.h"
#include "plan/plain_graph.h"
#include "plan/plan_evaluator.h"
#include "rewrite/joint.h"

namespace coda {
namespace {

using Build = std::function<void(Block&)>;

void expect_equal(const Block& b, const Plan& plan, const DimValues& sizes, uint64_t seed) {
  auto inputs = random_inputs(b.graph, sizes, seed);
  const Values expected = plain_values(b.graph, b.request, inputs, sizes);
  PlanEvaluator evaluator(plan, sizes);
  evaluator.values = inputs;
  for (const NamedValue& given : b.given) {
    evaluator.values[given.name] = evaluate(b.graph, {given.value.id}, inputs, sizes)[0].data;
  }
  std::map<std::string, std::vector<double>> before;
  for (const GradientRequest& g : b.request.gradients) {
    if (!g.accumulate) continue;
    before[g.name] = std::vector<double>(expected.at(g.name).size(), 0.5);
    evaluator.values[g.name] = before[g.name];
  }
  evaluator.run(plan.forward);
  evaluator.forget_temporaries();
  evaluator.run(plan.backward);
  for (const auto& [name, value] : expected) {
    std::vector<double> wanted = value;
    if (before.contains(name)) {
      for (double& x : wanted) x += 0.5;
    }
    ASSERT_TRUE(evaluator.values.contains(name)) << name;
    EXPECT_LT(std::sqrt(squared_error(evaluator.values.at(name), wanted)), 1e-11) << name;
  }
}

const std::map<std::string, Build>& blocks() {
  static const std::map<std::string, Build> all{
      {"llama_block", [](Block& b) { llama_block(b); }},
      {"llama_layer_alone", [](Block& b) { llama_layer_alone(b); }},
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
        const Forced forced{.fold = std::vector<bool>(16, fold != 0),
                            .pin = std::vector<bool>(16, pin != 0),
                            .given = b.given};
        SCOPED_TRACE("fold " + std::to_string(fold) + " pin " + std::to_string(pin));
        expect_equal(b, compile(b.graph, b.request, options, forced).plan, options.sizes, 1);
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
      expect_equal(b, compile(b.graph, b.request, options, {.given = b.given}).plan, options.sizes,
                   2);
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
  const size_t separate =
      compile(b.graph, b.request, options, {.given = b.given}).plan.tensors.size();
  options.overwrite_saved = true;
  const Plan plan = compile(b.graph, b.request, options, {.given = b.given}).plan;
  EXPECT_LT(plan.tensors.size(), separate);
  expect_equal(b, plan, options.sizes, 4);
}

TEST_P(EveryBlock, GradientsAreAddedToWhereAsked) {
  Block b;
  blocks().at(GetParam())(b);
  for (GradientRequest& g : b.request.gradients) g.accumulate = true;
  CompileOptions options;
  options.sizes = {{"M", 6}};
  expect_equal(b, compile(b.graph, b.request, options, {.given = b.given}).plan, options.sizes, 3);
}

INSTANTIATE_TEST_SUITE_P(Compile, EveryBlock,
                         testing::Values("llama_block", "llama_layer_alone", "llama_model_tied",
                                         "llama_model_untied", "gpt2_model", "parallel_block",
                                         "sandwich_block"),
                         [](const auto& info) { return info.param; });

// One bias over two products: its gradient is a concatenation of parts that are equal, or ones.
TEST(Compile, PartsOfAGradientAreStoredThoughTheyAreEqualOrConstant) {
  for (const bool mean : {false, true}) {
    for (const bool equal : {false, true}) {
      SCOPED_TRACE(std::string(mean ? "mean over rows" : "upstream") + (equal ? ", equal" : ""));
      Block b;
      const Value x = b.graph.input("x", {"M", 8});
      const Value bias = b.parameter("bias", {1, 24});
      const Value y = linear(x, b.parameter("w0", {12, 8})) + slice_columns(bias, 0, 12);
      const Value z = linear(x, b.parameter("w1", {12, 8})) + slice_columns(bias, 12, 12);
      b.seed(y + (equal ? z : tanh(z)), "out");
      if (mean) b.request.seeds[0].cotangent = b.graph.reciprocal_dim("M");
      CompileOptions options;
      options.sizes = {{"M", 5}};
      expect_equal(b, compile(b.graph, b.request, options).plan, options.sizes, 5);
      for (GradientRequest& g : b.request.gradients) g.accumulate = true;
      expect_equal(b, compile(b.graph, b.request, options).plan, options.sizes, 5);
    }
  }
}

TEST(Compile, ReductionsOfEveryKind) {
  for (int i = 0; i < kPartialKindCount; ++i) {
    const auto kind = static_cast<PartialKind>(i);
    SCOPED_TRACE(info(kind).name);
    Block b;
    reductions_of_product(b, kind);
    CompileOptions options;
    options.sizes = {{"M", 70}};
    expect_equal(b, compile(b.graph, b.request, options).plan, options.sizes, 5);
  }
}

// A policy loss takes the log-probability and the entropy of the same logits: both are results of
// one partial, and the backward reduces nothing along the logits.
TEST(Compile, AnEntropyAndALogSumExpOfOneValueAreOnePartial) {
  Block b;
  const Value x = b.graph.input("x", {"M", 48});
  const Value logits = linear(x, b.parameter("w", {130, 48}));
  const Value chosen = select_column(logits, b.graph.table("t", {"M", 1}, DType::i32));
  b.wants_gradient(x, "dx");
  b.seed(chosen - row_logsumexp(logits), "log_probability");
  b.seed(row_entropy(logits), "entropy");
  CompileOptions options;
  options.sizes = {{"M", 70}};
  const Plan plan = compile(b.graph, b.request, options).plan;
  int partials = 0;
  for (const PlanTensor& t : plan.tensors) {
    if (t.decl.kind == TensorKind::dense) continue;
    ++partials;
    EXPECT_EQ(t.decl.lanes, 3) << t.decl.name;
  }
  EXPECT_EQ(partials, 1);
  expect_equal(b, plan, options.sizes, 5);
}

}  // namespace
}  // namespace coda
