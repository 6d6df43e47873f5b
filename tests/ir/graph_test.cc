// SPDX-License-Identifier: Apache-2.0
// Graphs: equal nodes are one object, operands stand in one order, what can be simplified is, and a
// wrong shape is an error that names the operation, the operands' shapes and the caller's line.
#include "coda/graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "coda/builders.h"
#include "coda/error.h"
#include "ir/readers.h"
#include "ir/rebuild.h"

namespace coda {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class GraphTest : public testing::Test {
 protected:
  Graph g;
  Value x = g.input("x", {"M", 8});
  Value y = g.input("y", {"M", 8});
  Value w = g.parameter("w", {1, 8});
  Value r = rsqrt(row_sum(x * x));
  Value weight = g.parameter("weight", {6, 8});
  const Node& node(Value v) const { return g.node(v.id); }
};

TEST_F(GraphTest, ConstantsAreEqualByTheirBits) {
  EXPECT_EQ(g.constant(std::nan("")), g.constant(std::nan("")));
  EXPECT_NE(g.constant(0.0), g.constant(-0.0));
}

TEST_F(GraphTest, WhatANodeWasMadeFromIsMadeAnewWhenItHasBecomeAnInput) {
  const Value sum = row_sum(x * x);
  g.become_input(sum.id, "given");
  EXPECT_EQ(g.find_input("given"), sum.id);
  const Value again = row_sum(x * x);
  EXPECT_NE(again, sum);
  EXPECT_EQ(node(again).op, Op::row_sum);
}

TEST_F(GraphTest, ReadersAreListedAscendingAndOnceForEachOperand) {
  const Value square = x * x;
  const Value sum = square + y;
  const Value dead = x + y;
  const Readers readers(g, reached_from(g, {sum.id}));
  EXPECT_THAT(readers.of(x.id), ElementsAre(square.id, square.id));
  EXPECT_THAT(readers.of(y.id), ElementsAre(sum.id));
  EXPECT_THAT(readers.of(dead.id), IsEmpty());
}

TEST_F(GraphTest, APassFromRootToRootSeesEachNodeOnceAndOperandsFirst) {
  const Value a = exp(x);
  const Value b = a + y;
  std::vector<bool> seen;
  EXPECT_THAT(newly_reached(g, a.id, seen), ElementsAre(x.id, a.id));
  EXPECT_THAT(newly_reached(g, b.id, seen), ElementsAre(y.id, b.id));
  EXPECT_THAT(newly_reached(g, b.id, seen), IsEmpty());
}

TEST_F(GraphTest, EqualNodesAreOneObject) {
  EXPECT_EQ(x * y, x * y);
  EXPECT_EQ(linear(x, weight), linear(x, weight));
  EXPECT_EQ(split_pair(x, 2, 0), split_pair(x, 2, 0));
  EXPECT_EQ(g.constant(0.5), g.constant(0.5));
  const int size = g.size();
  row_sum(x * x);
  EXPECT_EQ(g.size(), size);
}

TEST_F(GraphTest, WhatDiffersInAnAttributeIsAnotherNode) {
  EXPECT_NE(split_pair(x, 2, 0), split_pair(x, 2, 1));
  EXPECT_NE(split_pair(x, 2, 0), split_pair(x, 4, 0));
  EXPECT_NE(slice_columns(x, 0, 2), slice_columns(x, 2, 2));
  EXPECT_NE(slice_columns(x, 0, 2), slice_columns(x, 0, 3));
  EXPECT_NE(repeat_columns(x, 2), repeat_columns(x, 3));
  EXPECT_NE(g.constant(0), g.constant(-0.0));
  EXPECT_NE(less(x, y), less(y, x));
  const Value square = g.parameter("square", {8, 8});
  EXPECT_NE(linear(x, square), conv1d(x, square));
}

TEST_F(GraphTest, IdsAreATopologicalOrder) {
  linear(rms_norm(x, w, 1e-5), weight);
  for (int id = 0; id < g.size(); ++id) {
    for (int operand : g.node(id).operands) EXPECT_LT(operand, id);
  }
}

TEST_F(GraphTest, OperandsStandInOneOrder) {
  EXPECT_EQ(x + y, y + x);
  EXPECT_EQ(x * y, y * x);
  EXPECT_EQ(w * x, x * w);
  EXPECT_EQ(node(w * x).operands, (std::vector<int>{x.id, w.id})) << "the tensor stands first";
  const Value a = row_sum(x);
  const Value b = row_sum(y);
  EXPECT_EQ((a * b) * r, a * (r * b)) << "a product of vectors has one form";
  EXPECT_EQ((a * 2.0) * b, (a * b) * 2.0) << "with its constant last";
}

TEST_F(GraphTest, NeutralElementsAndConstantsFold) {
  EXPECT_EQ(x + 0.0, x);
  EXPECT_EQ(x * 1.0, x);
  EXPECT_EQ(node(g.constant(2) * 3.0).number, 6);
  EXPECT_EQ(node(exp(g.constant(0))).number, 1);
  EXPECT_EQ((x * 2.0) * 3.0, x * 6.0);
  EXPECT_EQ(x + x, x * 2.0);
  EXPECT_EQ(node(g.reciprocal_dim(8)).number, 0.125);
  EXPECT_EQ(node(g.reciprocal_dim("N")).op, Op::reciprocal_dim);
}

TEST_F(GraphTest, InversesCancel) {
  EXPECT_EQ(r * recip(r), g.constant(1));
  EXPECT_EQ((x * r) * recip(r), x);
  EXPECT_EQ(recip(recip(r)), r);
  EXPECT_EQ((x + w) - w, x);
  EXPECT_EQ(transpose(transpose(w)), w);
}

TEST_F(GraphTest, ViewsOfWhatWasPutTogetherAreTheParts) {
  EXPECT_EQ(split_pair(merge_pairs(x, y, 4), 4, 0), x);
  EXPECT_EQ(split_pair(merge_pairs(x, y, 4), 4, 1), y);
  EXPECT_NE(split_pair(merge_pairs(x, y, 4), 2, 1), y) << "other pairs are other values";
  EXPECT_EQ(merge_pairs(split_pair(x, 4, 0), split_pair(x, 4, 1), 4), x);
  EXPECT_EQ(slice_columns(concat_columns({x, y}), 8, 8), y);
  EXPECT_EQ(concat_columns({slice_columns(x, 0, 3), slice_columns(x, 3, 5)}), x);
  EXPECT_EQ(slice_columns(x, 0, 8), x);
  EXPECT_EQ(repeat_columns(x, 1), x);
}

TEST_F(GraphTest, SelectsOfKnownConditionsKeepTheirShape) {
  EXPECT_EQ(select(g.constant(1), x, y), x);
  EXPECT_EQ(select(g.constant(0), x, y), y);
  EXPECT_EQ(select(g.constant(1), g.constant(3), x).shape(), x.shape());
  EXPECT_EQ(select(less(x, y), x, x), x);
}

TEST_F(GraphTest, ProductsWithVectorsAreReductions) {
  const Value row = linear(x, w);  // [M, 8] by [1, 8] transposed
  EXPECT_EQ(row, row_sum(x * w));
  EXPECT_EQ(matmul({{w, weight, {false, true}}}), transpose(row_sum(weight * w)));
  EXPECT_EQ(matmul({{r, x, {true, false}}}), col_sum(x * r));
}

TEST_F(GraphTest, WhatIsProvenPositive) {
  auto positive = [this](Value v) { return is_positive(g, v.id); };
  EXPECT_TRUE(positive(r));
  EXPECT_TRUE(positive(recip(r)));
  EXPECT_TRUE(positive(r * 2.0));
  EXPECT_TRUE(positive(g.constant(0.1)));
  EXPECT_TRUE(positive(g.reciprocal_dim("N")));
  EXPECT_FALSE(positive(g.constant(0)));
  EXPECT_FALSE(positive(r * -1.0));
  EXPECT_FALSE(positive(w)) << "a parameter may be 0";
  EXPECT_FALSE(positive(exp(row_sum(x)))) << "reaches 0 in fp32";
  EXPECT_FALSE(positive(x * x));
}

// The error of `build`, which must name the line it was called from.
template <typename Build>
std::string error_of(const Build& build) {
  try {
    build();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST_F(GraphTest, ShapeErrorsNameOperationOperandsShapesAndLine) {
  const std::string line = "graph_test.cc:" + std::to_string(__LINE__ + 1);
  EXPECT_THAT(error_of([&] { mul(x, g.input("z", {"M", 6})); }),
              AllOf(HasSubstr("mul(x: [M, 8], z: [M, 6])"), HasSubstr(line)));
  EXPECT_THAT(error_of([&] { add(x, g.input("n", {"N", 8})); }),
              AllOf(HasSubstr("add(x: [M, 8], n: [N, 8])")));
  EXPECT_THAT(error_of([&] { conv1d(x, weight); }),
              AllOf(HasSubstr("matmul(x: [M, 8], weight: [6, 8])"), HasSubstr("layout")));
  EXPECT_THAT(error_of([&] { split_pair(g.input("odd", {"M", 7}), 2, 0); }),
              AllOf(HasSubstr("split_pair(odd: [M, 7])"), HasSubstr("odd")));
  EXPECT_THAT(error_of([&] { mul(x, exp(linear(x, weight))); }),
              HasSubstr("mul(x: [M, 8], exp: [M, 6])"));
  EXPECT_THAT(error_of([&] { split_pair(x, 6, 0); }), HasSubstr("group 6"));
  EXPECT_THAT(error_of([&] { slice_columns(x, 4, 5); }), HasSubstr("[4, 9)"));
  EXPECT_THAT(error_of([&] { merge_pairs(x, w, 2); }),
              HasSubstr("merge_pairs(x: [M, 8], w: [1, 8])"));
  EXPECT_THAT(error_of([&] { transpose(x); }), HasSubstr("only vectors"));
  EXPECT_THAT(error_of([&] { rms_norm(x, r, 1e-5); }),
              HasSubstr("rms_norm(x: [M, 8], rsqrt: [M, 1])"));
  EXPECT_THAT(error_of([&] { select_column(x, w); }), HasSubstr("select_column"));
  EXPECT_THAT(error_of([&] { g.input("x", {"M", 8}); }), HasSubstr("\"x\""));
  Graph other;
  EXPECT_THAT(error_of([&] { add(x, other.input("x", {"M", 8})); }), HasSubstr("different graphs"));
}

}  // namespace
}  // namespace coda
