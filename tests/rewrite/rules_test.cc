// SPDX-License-Identifier: Apache-2.0
// Each rule of sink_scales and merge_gemms by what it must lead to, and its values before against
// after; and both passes, alone and together, on random graphs.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "coda/graph_text.h"
#include "coda/operation.h"
#include "plan/plain_graph.h"
#include "plan/random_graphs.h"
#include "rewrite/joint.h"
#include "rewrite/merge_gemms.h"
#include "rewrite/sink_scales.h"

namespace coda {
namespace {

constexpr double kTolerance = 1e-11;
const DimValues kSizes{{"M", 5}};

class Rules : public testing::Test {
 protected:
  Graph g;
  Value x = g.input("x", {"M", 8});
  Value y = g.input("y", {"M", 8});
  Value w = g.parameter("w", {1, 8});
  Value bias = g.parameter("bias", {1, 8});
  Value a = g.parameter("a", {6, 8});
  Value b = g.parameter("b", {6, 8});
  Value d = g.input("d", {"M", 6});  // a gradient of [M, 6]
  Value e = g.input("e", {"M", 6});
  Candidates candidates;

  const Node& node(int id) const { return g.node(id); }
  static std::string text(Graph& graph, const std::vector<int>& roots) {
    std::vector<NamedValue> outputs;
    for (const int root : roots)
      outputs.push_back({"y" + std::to_string(outputs.size()), graph.value(root)});
    return coda::text(graph, outputs);
  }
  bool is(int id, Op op) const { return node(id).op == op; }
  bool is(int id, Elementwise fn) const { return is(id, Op::elementwise) && node(id).fn == fn; }

  bool depends(int id, int on) const {
    if (id == on) return true;
    for (int operand : node(id).operands) {
      if (depends(operand, on)) return true;
    }
    return false;
  }
  std::vector<int> all(int root, Op op) const {
    const std::vector<bool> reached = reached_from(g, {root});
    std::vector<int> found;
    for (int id = 0; id <= root; ++id) {
      if (reached[static_cast<size_t>(id)] && is(id, op)) found.push_back(id);
    }
    return found;
  }
  int the_product(int root) const {
    const std::vector<int> products = all(root, Op::matmul);
    EXPECT_EQ(products.size(), 1U);
    return products.at(0);
  }

  void expect_same_value(int before, int after) {
    const auto inputs = random_inputs(g, kSizes, 3);
    const std::vector<Matrix> values = evaluate(g, {before, after}, inputs, kSizes);
    EXPECT_LT(std::sqrt(squared_error(values[1].data, values[0].data)), kTolerance);
  }
  int sunk(Value v, const Choices& choices = {}, const std::vector<bool>& frozen = {}) {
    const int after = sink_scales(g, {v.id}, {&choices, frozen}, candidates)[0];
    expect_same_value(v.id, after);
    return after;
  }
  int joined(Value v, const std::vector<bool>& frozen = {}) {
    const int after = merge_gemms(g, {v.id}, frozen)[0];
    expect_same_value(v.id, after);
    return after;
  }
  // Forward nodes of `v` and all that it needs.
  std::vector<bool> frozen_by(Value v) { return reached_from(g, {v.id}); }
  Value r() { return rms_reciprocal(x, 1e-3); }
};

// ---- sink_scales
// -----------------------------------------------------------------------------------------

TEST_F(Rules, RowScalesGoBehindProducts) {
  const int z = sunk(linear(x * r(), a));
  EXPECT_FALSE(depends(the_product(z), r().id)) << "the product waits for no row reduction";
  EXPECT_TRUE(is(z, Elementwise::mul));
  EXPECT_EQ(candidates.row_factors, std::vector<int>{r().id});
}

TEST_F(Rules, RowScalesPassRotationsSplitsAndMerges) {
  const RopeTables tables{g.table("cos", {9, 2}), g.table("sin", {9, 2}),
                          g.table("position", {"M", 1}, DType::i32)};
  const Value square = g.parameter("square", {8, 8});
  const int z = sunk(rope(linear(x * r(), square), tables, 2, 4));
  ASSERT_TRUE(is(z, Elementwise::mul)) << text(g, {z});
  EXPECT_EQ(node(z).operands[1], r().id);
  EXPECT_TRUE(is(node(z).operands[0], Op::merge_pairs));
}

TEST_F(Rules, RowFactorsLeaveRowSumsAndScalarsLeaveColumnSums) {
  const int sum = sunk(row_sum(linear(x * r(), a)));
  EXPECT_TRUE(is(sum, Elementwise::mul));
  EXPECT_TRUE(depends(sum, r().id));
  EXPECT_FALSE(depends(all(sum, Op::row_sum).back(), r().id));
  const Value scalar = g.input("scalar", {1, 1});
  const int columns = sunk(col_sum(linear(x * scalar, a)));
  EXPECT_FALSE(depends(all(columns, Op::col_sum)[0], scalar.id));
}

TEST_F(Rules, AMaskIsASelectNotAProductWithZero) {
  const Value mask = g.table("mask", {"M", 1}, DType::i32);
  const Value scalar = g.input("scalar", {1, 1});
  const Value zero = g.constant(0);
  const int z = sunk(linear(x, a) * select(mask, scalar, zero));
  ASSERT_TRUE(is(z, Elementwise::mul)) << "the scalar stands outside";
  EXPECT_EQ(node(z).operands[1], scalar.id);
  EXPECT_TRUE(is(node(z).operands[0], Elementwise::select));
}

TEST_F(Rules, AReadyVectorStaysWhereItStands) {
  const Value z = linear(x, a) + g.parameter("c", {1, 6});
  EXPECT_EQ(sunk(z), z.id) << "a bias does not travel";
  const Value other = row_sum(y);
  EXPECT_EQ(sunk(linear(x, a) + other), (linear(x, a) + other).id)
      << "nor a reduction that does not wait for the product";
}

TEST_F(Rules, AMeanGoesBehindTheProductInsideTheScaleAndABiasOutside) {
  const int z = sunk(linear(layer_norm(x, w, bias, 1e-3), a));
  const int product = the_product(z);
  EXPECT_TRUE(all(product, Op::row_sum).empty()) << text(g, {z});
  // (acc - mean gᵀ) ⊙ r + β: the outermost sum adds β, and r scales all that is inside.
  ASSERT_TRUE(is(z, Elementwise::add));
  const bool beta_first = node(node(z).operands[0]).shape.is_vector();
  const int beta = node(z).operands[beta_first ? 0 : 1];
  const int scaled = node(z).operands[beta_first ? 1 : 0];
  EXPECT_TRUE(depends(beta, bias.id));
  EXPECT_FALSE(depends(scaled, bias.id));
  ASSERT_TRUE(is(scaled, Elementwise::mul));
  EXPECT_FALSE(all(node(scaled).operands[1], Op::row_reduce).empty());
  EXPECT_TRUE(is(node(scaled).operands[0], Elementwise::add));
  EXPECT_EQ(candidates.row_affine, std::vector<int>{w.id});
}

// (X r + c) + (Y r + c'): X and Y are added before r scales them, c and c' behind it.
TEST_F(Rules, TermsOutsideOfEqualFactorsStayOutsideInASum) {
  const Value c = g.parameter("c", {1, 6});
  const Value other = g.parameter("other", {1, 6});
  const int z = sunk((linear(mul(x, r()), a) + c) + (linear(mul(y, r()), b) + other));
  int scaled = -1;
  for (int id = 0; id <= z; ++id)
    if (depends(z, id) && is(id, Elementwise::mul) && depends(id, x.id) && depends(id, y.id) &&
        node(id).shape.is_tensor())
      scaled = id;
  ASSERT_GE(scaled, 0) << text(g, {z});
  EXPECT_FALSE(depends(scaled, c.id) || depends(scaled, other.id)) << text(g, {z});
}

TEST_F(Rules, AColumnFactorGoesWhereTheChoiceSays) {
  const Value norm = rms_norm(x, w, 1e-3);
  const int producer = sunk(linear(norm, a));
  EXPECT_EQ(node(the_product(producer)).operands, (std::vector<int>{(x * w).id, a.id}));
  const int weight = sunk(linear(norm, a), {{ColumnFactor::weight}, {}});
  EXPECT_EQ(node(the_product(weight)).operands, (std::vector<int>{x.id, (a * w).id}));
  const int first = sunk(linear(norm, a), {{ColumnFactor::normalise_first}, {}});
  EXPECT_TRUE(depends(the_product(first), r().id)) << "the product waits for the norm";
}

TEST_F(Rules, AFoldedFactorScalesTheSumsOfTheWeightToo) {
  sunk(linear(layer_norm(x, w, bias, 1e-3), a));  // the candidates
  const int z = sunk(linear(layer_norm(x, w, bias, 1e-3), a), {{ColumnFactor::weight}, {}});
  // g is the row sums of W ⊙ w, the very value that is multiplied with.
  EXPECT_FALSE(all(row_sum(a * w).id, Op::row_sum).empty());
  EXPECT_TRUE(depends(z, row_sum(a * w).id)) << text(g, {z});
}

TEST_F(Rules, FactorsAlongTheOutputsLeaveAWeightsGradient) {
  const Value h = (x * r()) * w;
  const int dw = sunk(matmul({{d, h, {true, false}}}), {}, frozen_by(h));
  ASSERT_TRUE(is(dw, Elementwise::mul));
  EXPECT_EQ(node(dw).operands[1], w.id);
  EXPECT_FALSE(depends(node(dw).operands[0], w.id));
}

TEST_F(Rules, ARowFactorOfAWeightsGradientStandsOnEitherOperand) {
  const Value h = (x * r()) * w;
  candidates.row_factors = {r().id};
  const Value dw = matmul({{d, h, {true, false}}});
  const int u = sunk(dw, {}, frozen_by(h));
  EXPECT_EQ(node(the_product(u)).operands, (std::vector<int>{d.id, (x * r()).id}));
  const int pinned = sunk(dw, {{}, {true}}, frozen_by(h));
  EXPECT_EQ(node(the_product(pinned)).operands, (std::vector<int>{(d * r()).id, x.id}));
  // The data gradient reads the same stored dz'.
  const Value dh = matmul({{d * r(), a, {false, false}}});
  EXPECT_EQ(node(the_product(sunk(dh, {{}, {true}}, frozen_by(h)))).operands[0], (d * r()).id);
  EXPECT_EQ(node(the_product(sunk(dh, {}, frozen_by(h)))).operands[0], d.id);
}

TEST_F(Rules, WhatReducesThePinnedGradientReducesTheStoredOne) {
  const Value h = (x * r()) * w;
  candidates.row_factors = {r().id};
  const Value mean = row_mean(x);
  const int t = sunk(col_sum(((d * -0.125) * r()) * mean), {{}, {true}}, frozen_by(h));
  EXPECT_TRUE(depends(t, (d * r()).id)) << text(g, {t});
}

TEST_F(Rules, SlicesGoToTheWeight) {
  const Value wide = g.parameter("wide", {8, 12});
  const Value c = g.parameter("c", {1, 12});
  const int z = sunk(slice_columns(conv1d(x, wide) + c, 4, 4));
  EXPECT_EQ(node(the_product(z)).operands, (std::vector<int>{x.id, slice_columns(wide, 4, 4).id}));
  EXPECT_TRUE(depends(z, slice_columns(c, 4, 4).id));
}

TEST_F(Rules, FrozenNodesStayThemselves) {
  const Value z = linear((x * r()) * w, a);
  EXPECT_EQ(sunk(z, {}, frozen_by(z)), z.id);
}

// ---- merge_gemms
// -------------------------------------------------------------------------------------

TEST_F(Rules, ProductsWithEqualFactorsBecomeSegments) {
  const Value dgate = matmul({{d, a, {false, false}}});
  const Value dup = matmul({{e, b, {false, false}}});
  const int dx = joined((dgate * w) * r() + ((dup * w) * r() + y));
  EXPECT_EQ(node(the_product(dx)).transposes.size(), 2U) << text(g, {dx});
  const int unequal = joined(dgate * w + dup);
  EXPECT_EQ(all(unequal, Op::matmul).size(), 2U) << "with other factors they stay two";
}

// A number that all share stands outside; 2AB + 3CD is no one product.
TEST_F(Rules, ProductsWithEqualNumbersBecomeSegments) {
  const Value p = matmul({{d, a, {false, false}}});
  const Value q = matmul({{e, b, {false, false}}});
  const int equal = joined(p * 2.0 + q * 2.0);
  EXPECT_EQ(node(the_product(equal)).transposes.size(), 2U) << text(g, {equal});
  for (const auto& [of_p, of_q] : {std::pair{2.0, 3.0}, {1.0, 0.3}, {0.7, -0.7}}) {
    const int unequal = joined((p * w) * of_p + (q * w) * of_q);
    EXPECT_EQ(all(unequal, Op::matmul).size(), 2U) << of_p << " and " << of_q;
  }
}

TEST_F(Rules, SegmentsOfASlicedWeightStandInItsOrder) {
  const Value qkv = g.parameter("qkv", {8, 12});  // as Conv1D stores it
  const Value left = slice_columns(qkv, 0, 6);
  const Value right = slice_columns(qkv, 6, 6);
  const Value of_right = matmul({{d, right, {false, true}}});
  const Value of_left = matmul({{e, left, {false, true}}});
  const int sum = joined(of_right + of_left);
  const std::vector<int> in_order{e.id, left.id, d.id, right.id};
  EXPECT_EQ(node(the_product(sum)).operands, in_order) << text(g, {sum});
}

// The residual stream is the largest term by far: one addition to it, one rounding at its size.
TEST_F(Rules, WhatLiesInMemoryIsAddedLast) {
  const Value product = matmul({{d, a, {false, false}}});
  const Value mean = row_mean(y);
  const int sum = joined(x + mean + bias + product * w);
  ASSERT_TRUE(is(sum, Elementwise::add));
  const std::vector<int>& operands = node(sum).operands;
  EXPECT_NE(std::find(operands.begin(), operands.end(), x.id), operands.end()) << text(g, {sum});
}

TEST_F(Rules, ASumThatOthersReadTooStaysOneTerm) {
  const Value product = matmul({{d, a, {false, false}}}) * w;
  const Value shared = x + y * w;
  const Value dx = shared + product;
  for (const bool in_backward : {false, true}) {
    const std::vector<bool> frozen = in_backward ? frozen_by(x) : std::vector<bool>{};
    const std::vector<int> after = merge_gemms(g, {dx.id, linear(shared, a).id}, frozen);
    const std::vector<int>& operands = node(after[0]).operands;
    EXPECT_NE(std::find(operands.begin(), operands.end(), shared.id), operands.end())
        << text(g, {after[0]});
  }
}

TEST_F(Rules, ARankOneTermJoinsAnOperandThatIsNotStored) {
  const Value v = row_mean(x);
  const Value made = x * r();  // not an input, a product or a result
  const Value dw = matmul({{d, made, {true, false}}}) + transpose(col_sum(d * v)) * bias;
  const int joined_dw = joined(dw);
  EXPECT_EQ(node(the_product(joined_dw)).operands[1], (made + v * bias).id) << text(g, {joined_dw});
  const Value stored = matmul({{d, x, {true, false}}}) + transpose(col_sum(d * v)) * bias;
  EXPECT_EQ(node(the_product(joined(stored))).operands[1], x.id) << "a stored operand stays";
}

// With numbers and vectors of their own before the product and before the term; on either side.
TEST_F(Rules, ARankOneTermKeepsItsSignAndNumber) {
  const Value v = row_mean(x);
  const Value made = x * r();
  const Value by_left = matmul({{d, made, {true, false}}});
  const Value by_right = matmul({{made, d, {true, false}}});
  const Value of_outputs = g.parameter("of_outputs", {1, 6});
  for (const auto& [of_product, of_term] : {std::pair{1.0, -1.0}, {0.7, 0.3}, {-2.0, 3.0}}) {
    const Value left = transpose(col_sum(d * v)) * bias * of_term;
    const int dw = joined(by_left * of_product + left);
    EXPECT_TRUE(is(node(the_product(dw)).operands[1], Elementwise::add)) << text(g, {dw});
    const int scaled = joined((by_left * w) * of_product + left * w);
    EXPECT_TRUE(is(node(the_product(scaled)).operands[1], Elementwise::add)) << text(g, {scaled});
    const Value right = transpose(bias) * col_sum(d * v) * of_term;
    const int dv = joined((by_right * of_outputs) * of_product + right * of_outputs);
    EXPECT_TRUE(is(node(the_product(dv)).operands[0], Elementwise::add)) << text(g, {dv});
  }
}

TEST_F(Rules, ColumnSumsThatShareAProductJoin) {
  const Value p = matmul({{d, a, {false, false}}});
  const int sum = joined(col_sum(p * x) + col_sum(p * y));
  EXPECT_EQ(all(sum, Op::col_sum).size(), 1U) << text(g, {sum});
  joined(col_sum((p * x) * 0.7) + col_sum((y * -0.3) * p) + col_sum(p));
}

// Σ (W ⊙ (Σ (A ⊙ u))ᵀ) beside Σ ((A·W) ⊙ x) is one sum over the product, whatever scales it.
TEST_F(Rules, AColumnSumThroughAWeightJoinsTheSumOverTheProduct) {
  const Value plain = matmul({{d, a, {false, false}}});
  const Value t = g.parameter("t", {8, 6});
  const Value turned = matmul({{d, t, {false, true}}});
  const Value u = row_mean(y);
  for (const double number : {1.0, -1.0, 0.3}) {
    const Value of_plain = col_sum(a * (transpose(col_sum(d * u)) * number));
    const int one = joined(col_sum(plain * x) + of_plain);
    EXPECT_EQ(all(one, Op::col_sum).size(), 1U) << text(g, {one});
    const Value of_turned = transpose(row_sum(t * (col_sum(d * u) * number)));
    const int other = joined(col_sum(turned * x) + of_turned);
    EXPECT_EQ(all(other, Op::col_sum).size(), 1U) << text(g, {other});
  }
}

TEST_F(Rules, FactorsThatAllTermsShareLeaveASum) {
  const Value s1 = row_sum(d);
  const Value s2 = row_sum(e);
  const int sum = joined(s1 * recip(r()) + s2 * recip(r()));
  ASSERT_TRUE(is(sum, Elementwise::mul));
  EXPECT_TRUE(depends(sum, recip(r()).id));
  EXPECT_EQ((g.value(sum) * r()).id, (s1 + s2).id) << "and meet their inverse";
  joined((s1 * recip(r())) * 0.7 + (s2 * recip(r())) * -0.3);
}

TEST_F(Rules, ASumWithAScatterIsAScatterIntoIt) {
  const Value ids = g.table("ids", {"M", 1}, DType::i32);
  const Value head = g.input("head", {9, 8});
  const int sum = joined(head + opaque_call("embedding_backward", {x, ids}, {}, {{"rows", 9}})[0]);
  ASSERT_TRUE(is(sum, Op::result));
  EXPECT_EQ(node(node(sum).operands[0]).operands, (std::vector<int>{x.id, ids.id, head.id}));
}

// ---- random graphs
// ---------------------------------------------------------------------------------

void expect_equal(const std::vector<Matrix>& before, const std::vector<Matrix>& after) {
  for (size_t i = 0; i < before.size(); ++i) {
    EXPECT_LT(std::sqrt(squared_error(after[i].data, before[i].data)), kTolerance) << i;
  }
}

TEST(RewritingRandomGraphs, EachPassKeepsTheForwardsValues) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    RandomGraph random(seed);
    Graph& g = random.block.graph;
    const auto inputs = random.inputs();
    std::mt19937_64 bits(seed);
    Choices choices;
    for (int i = 0; i < 24; ++i) {
      choices.column_factors.push_back(static_cast<ColumnFactor>(bits() % 3));
      choices.pinned.push_back(bits() % 2 == 0);
    }
    std::vector<int> roots;
    for (const NamedValue& o : random.block.request.outputs) roots.push_back(o.value.id);
    const std::vector<Matrix> before = evaluate(g, roots, inputs, random.sizes());
    Candidates candidates;
    const std::vector<int> sunk_roots = sink_scales(g, roots, {&choices, {}}, candidates);
    expect_equal(before, evaluate(g, sunk_roots, inputs, random.sizes()));
    expect_equal(before, evaluate(g, merge_gemms(g, roots, {}), inputs, random.sizes()));
    expect_equal(before, evaluate(g, merge_gemms(g, sunk_roots, {}), inputs, random.sizes()));
    if (testing::Test::HasFailure()) return;
  }
}

TEST(RewritingRandomGraphs, TheJointGraphIsThePlainGradientWithNoMoreProducts) {
  for (uint64_t seed = 1001; seed <= 1300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    RandomGraph random(seed);
    const Block& b = random.block;
    const auto inputs = random.inputs();
    const auto values = [&](bool rewritten, size_t& products) {
      const JointGraph joint = rewrite_jointly(b.graph, b.request, {}, rewritten);
      std::vector<int> roots = joint.outputs;
      roots.insert(roots.end(), joint.gradients.begin(), joint.gradients.end());
      const std::vector<bool> reached = reached_from(*joint.graph, roots);
      products = 0;
      for (int id = 0; id < joint.graph->size(); ++id) {
        products += reached[static_cast<size_t>(id)] && joint.graph->node(id).op == Op::matmul;
      }
      return evaluate(*joint.graph, roots, inputs, random.sizes());
    };
    size_t plain = 0;
    size_t rewritten = 0;
    expect_equal(values(false, plain), values(true, rewritten));
    EXPECT_LE(rewritten, plain);
    if (testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace coda
