// SPDX-License-Identifier: Apache-2.0
// What a tile does not hold passes through memory: views of computed values, vectors that are
// slices or joined, two layouts of pairs, pairs of pairs. Every such graph compiles, with and
// without epilogues, and its plan computes what the graph says, forward and backward.
#include "plan/partition/materialise.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "plan/plain_graph.h"
#include "plan/plan_evaluator.h"

namespace coda {
namespace {

const DimValues kBranchSizes{{"M", 6}};

Plan plan_of(const Block& b, bool fuse = true) {
  CompileOptions options;
  options.sizes = kBranchSizes;
  options.fuse = fuse;
  return compile(b.graph, b.request, options).plan;
}

void expect_as_written(const Block& b) {
  Values inputs = random_inputs(b.graph, kBranchSizes, 3, 6);
  Values all = plain_values(b.graph, b.request, inputs, kBranchSizes);
  for (const GradientRequest& g : b.request.gradients) {
    if (!g.accumulate) continue;
    inputs[g.name].assign(all.at(g.name).size(), 0.25);
    for (double& x : all.at(g.name)) x += 0.25;
  }
  for (const bool fuse : {true, false}) {
    const Plan plan = plan_of(b, fuse);
    PlanEvaluator evaluator(plan, kBranchSizes);
    evaluator.values = inputs;
    evaluator.run(plan.forward);
    evaluator.forget_temporaries();
    evaluator.run(plan.backward);
    for (const auto& [name, expected] : all) {
      ASSERT_TRUE(evaluator.values.contains(name)) << name;
      EXPECT_LT(squared_error(evaluator.values.at(name), expected), 1e-18) << name;
    }
  }
}

// z = linear(x, w) [M, 192].
struct Natural {
  std::string_view name;
  std::function<Value(Block&, Value z)> build;
};

Value heads(Value z, int64_t first) {  // of q, k, v interleaved by heads of 16
  std::vector<Value> parts;
  for (int64_t head = 0; head < 4; ++head)
    parts.push_back(slice_columns(z, 48 * head + 16 * first, 16));
  return concat_columns(parts);
}

Value turned(Value p, const Dim& group) {
  return merge_pairs(tanh(split_pair(p, group, 0)), split_pair(p, group, 1), group);
}

const std::vector<Natural> kNatural{
    {"repeated_norm_weight",
     [](Block& b, Value z) { return z * repeat_columns(b.parameter("n", {1, 64}), 3); }},
    {"repeated_groups",
     [](Block& b, Value z) { return z * group_repeat(b.parameter("s", {1, 3}), 64); }},
    {"joined_vectors",
     [](Block& b, Value z) {
       return z * concat_columns({b.parameter("a", {1, 64}), b.parameter("b", {1, 128})});
     }},
    {"slice", [](Block&, Value z) { return slice_columns(z, 64, 64) * 2.0; }},
    {"one_column", [](Block&, Value z) { return z * slice_columns(z, 0, 1); }},
    {"heads_of_q_k_v",
     [](Block&, Value z) {
       return attention(heads(z, 0), heads(z, 1), heads(z, 2),
                        {.heads = 4, .kv_heads = 4, .head_dim = 16, .sequence = 6});
     }},
    {"gathered_rows",
     [](Block& b, Value z) {
       return gather_rows(z, b.graph.table("rows", {5, 1}, DType::i32)) * 2.0;
     }},
    {"partial_rotation",
     [](Block& b, Value z) {
       const RopeTables tables{b.graph.table("cos", {6, 16}), b.graph.table("sin", {6, 16}),
                               b.graph.table("position", {"M", 1}, DType::i32)};
       return concat_columns(
           {rope(slice_columns(z, 0, 64), tables, 2, 32), slice_columns(z, 64, 128)});
     }},
    {"two_layouts_of_pairs", [](Block&, Value z) { return turned(turned(z, 4), 16); }},
    {"pairs_of_pairs",
     [](Block&, Value z) {
       return turned(split_pair(z, 16, 0) * sigmoid(split_pair(z, 16, 1)), 4);
     }},
    {"sum_of_groups", [](Block&, Value z) { return z * row_sum(tanh(group_sum(z * 0.1, 4))); }},
    {"joined", [](Block&, Value z) { return tanh(concat_columns({exp(z * 0.1), sigmoid(z)})); }},
    {"repeated", [](Block&, Value z) { return tanh(repeat_columns(z, 2)); }},
    {"slice_of_joined_vectors",
     [](Block& b, Value z) {
       const Value sums = concat_columns({row_sum(z), row_sum(tanh(z)), row_sum(z)});
       return linear(slice_columns(sums, 1, 2), b.parameter("n", {10, 2}));
     }},
    {"gradient_negated_and_read_back",
     [](Block& b, Value z) {
       return linear(-z, b.parameter("n", {10, 192})) + slice_columns(z, 2, 10);
     }},
    {"product_of_one_column_a_group",
     [](Block& b, Value z) {
       return group_repeat(linear(z, b.parameter("narrow", {12, 192})) * 0.5, 2);
     }},
    // The backward makes -z of what is saved, the shifted value, and has no z.
    {"negated_and_shifted",
     [](Block& b, Value z) {
       const Value shifted = -z + b.graph.input("shift", {"M", 1});
       return shifted * shifted + 1.0 / (0.5 + z * z) + tanh(-z);
     }},
    {"terms_that_cancel",
     [](Block& b, Value z) {
       const Value t = tanh(b.parameter("t", {1, 192}));
       return z + (t - t);
     }},
    {"one_part_twice", [](Block&, Value z) { return concat_columns({z, z, z * 0.5}); }},
    {"twenty_equal_terms",
     [](Block&, Value z) {
       Value sum = z;
       for (int i = 1; i < 20; ++i) sum = sum + z;
       return sum;
     }},
};

void PrintTo(const Natural& natural, std::ostream* os) { *os << natural.name; }

class NaturalGraph : public testing::TestWithParam<Natural> {};

TEST_P(NaturalGraph, ComputesWhatTheGraphSays) {
  Block b;
  const Value x = b.graph.input("x", {"M", 24});
  b.wants_gradient(x, "d_x");
  b.seed(GetParam().build(b, linear(x, b.parameter("w", {192, 24}))), "out");
  expect_as_written(b);
}

INSTANTIATE_TEST_SUITE_P(Materialised, NaturalGraph, testing::ValuesIn(kNatural),
                         [](const auto& info) { return std::string(info.param.name); });

// A gradient that is added to what the caller has, one part of it a result of a call that cannot
// add; and one of a call that adds, to columns that stand in no single tensor.
TEST(AccumulatedGradients, AreAddedWhereTheirCallsCannot) {
  Block of_slice;
  const Value x = of_slice.graph.input("x", {"M", 24});
  of_slice.wants_gradient(x, "d_x");
  const Value k = of_slice.graph.input("k", {"M", 16});
  of_slice.seed(attention(slice_columns(x, 8, 16), k, k,
                          {.heads = 2, .kv_heads = 2, .head_dim = 8, .sequence = 6}),
                "out");
  of_slice.request.gradients[0].accumulate = true;
  expect_as_written(of_slice);

  Block of_rows;
  const Value y = of_rows.graph.input("x", {"M", 2});
  of_rows.wants_gradient(y, "d_x");
  const Value rows = of_rows.graph.table("rows", {"M", 1}, DType::i32);
  of_rows.seed(gather_rows(y, rows) + repeat_columns(slice_columns(y, 0, 1), 2), "out");
  of_rows.request.gradients[0].accumulate = true;
  expect_as_written(of_rows);
}

// An output is the caller's memory: of what lies in memory already it is a copy.
TEST(Outputs, AreCopiesOfInputsAndOfTheirViews) {
  Block b;
  const Value x = b.graph.input("x", {"M", 12});
  const Value rows = b.graph.table("rows", {"M", 1}, DType::i32);
  int number = 0;
  for (const Value view : {x, slice_columns(x, 4, 4), slice_columns(x, 4, 1), repeat_columns(x, 2),
                           gather_rows(x, rows), slice_columns(gather_rows(x, rows), 0, 2), x}) {
    b.request.outputs.push_back({"seen" + std::to_string(number), view});
    b.request.outputs.push_back({"computed" + std::to_string(number++), exp(view)});
  }
  expect_as_written(b);
}

// What fits is not touched: the products of a layer keep their epilogues.
TEST(WhatFits, HasNoCallBetween) {
  Block b;
  llama_block(b);
  const JointGraph joint = rewrite_jointly(b.graph, b.request, {}, true);
  const JointGraph laid = materialise(joint, {}).joint;
  for (int id = 0; id < laid.graph->size(); ++id) EXPECT_LT(stored_value(*laid.graph, id), 0);
}

}  // namespace
}  // namespace coda
