// SPDX-License-Identifier: Apache-2.0
// Gradients against central finite differences of the reference evaluator in float64, for every
// operation and block.
#include "grad/differentiate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <utility>

#include "coda/builders.h"
#include "grad/central_difference.h"
#include "ir/evaluate_graph.h"

namespace coda {
namespace {

using Inputs = std::map<std::string, std::vector<double>>;

struct Case {
  Graph graph;
  Inputs inputs;
  DimValues sizes{{"M", 5}};
  std::vector<int> wanted;
  std::mt19937_64 random{7};

  Value wanted_input(const std::string& name, Shape shape, double low = -1, double high = 1) {
    const Value v = graph.input(name, std::move(shape));
    fill(v, name, low, high);
    wanted.push_back(v.id);
    return v;
  }
  Value table(const std::string& name, Shape shape, double low = -1, double high = 1) {
    const Value v = graph.table(name, std::move(shape));
    fill(v, name, low, high);
    return v;
  }
  void fill(Value v, const std::string& name, double low, double high) {
    std::uniform_real_distribution<double> uniform(low, high);
    std::vector<double>& data = inputs[name];
    data.resize(
        static_cast<size_t>(v.shape().rows.evaluate(sizes) * v.shape().cols.evaluate(sizes)));
    for (double& x : data) x = uniform(random);
  }
};

// Every gradient element against (f(x + h) - f(x - h)) / 2h of f = <seed, output>.
void expect_gradients(Case& c, Value output) {
  const Value seed = c.table("seed", output.shape());
  const std::vector<Value> gradients = differentiate(c.graph, {{output.id, seed}}, c.wanted);
  auto objective = [&]() {
    const Matrix y = evaluate(c.graph, {output.id}, c.inputs, c.sizes)[0];
    double sum = 0;
    for (size_t i = 0; i < y.data.size(); ++i) sum += y.data[i] * c.inputs["seed"][i];
    return sum;
  };
  for (size_t w = 0; w < c.wanted.size(); ++w) {
    const std::string name = c.graph.node(c.wanted[w]).name;
    std::vector<double>& x = c.inputs[name];
    Matrix g;
    g.data.assign(x.size(), 0);  // no gradient: zero everywhere
    if (gradients[w].graph != nullptr) {
      ASSERT_EQ(gradients[w].shape(), c.graph.node(c.wanted[w]).shape) << name;
      g = evaluate(c.graph, {gradients[w].id}, c.inputs, c.sizes)[0];
    }
    for (size_t i = 0; i < x.size(); ++i) {
      EXPECT_NEAR(g.data[i], tests::central_difference(x[i], 1e-5, objective),
                  1e-7 * (1 + std::abs(g.data[i])))
          << name << "[" << i << "]";
    }
  }
}

// By every operand of every row of the table, also those that are broadcast; the operands lie where
// every operation is smooth. Without a derivative the function does not depend on the operand
// there.
TEST(Differentiate, EveryElementwiseOperationWithEveryBroadcast) {
  for (int k = 0; k < kElementwiseCount; ++k) {
    const ElementwiseInfo& row = info(static_cast<Elementwise>(k));
    for (int wanted = 0; wanted < row.arity; ++wanted) {
      for (const Shape& shape : {Shape{"M", 4}, Shape{"M", 1}, Shape{1, 4}, Shape{1, 1}}) {
        SCOPED_TRACE(std::string(row.name) + " by operand " + std::to_string(wanted) +
                     " of shape " + shape.text());
        Case c;
        std::vector<Value> operands;
        for (int i = 0; i < row.arity; ++i) {
          const std::string name(1, static_cast<char>('a' + i));
          operands.push_back(i == wanted ? c.wanted_input(name, shape, 0.5, 2)
                                         : c.table(name, {"M", 4}, 0.5, 2));
        }
        expect_gradients(c, elementwise(row.op, operands));
      }
    }
  }
}

TEST(Differentiate, SelectAndSquare) {
  Case c;
  const Value x = c.wanted_input("x", {"M", 4});
  const Value y = c.wanted_input("y", {"M", 1});
  expect_gradients(c, select(less(x, y), x * x, mul(x, y)));
}

TEST(Differentiate, Reductions) {
  const std::vector<std::function<Value(Value)>> reductions{
      [](Value x) { return row_sum(x * x); },
      [](Value x) { return col_sum(x * x); },
      [](Value x) { return row_logsumexp(x); },
      [](Value x) { return row_m2(x); },
      [](Value x) { return row_entropy(x) + row_logsumexp(x); },
      [](Value x) { return group_sum(x * x, 2); },
      [](Value x) { return mul(x, group_repeat(group_sum(x, 3), 3)); },
      [](Value x) { return col_sum(row_sum(x * x)); },
  };
  for (const auto& reduction : reductions) {
    Case c;
    expect_gradients(c, reduction(c.wanted_input("x", {"M", 6})));
  }
}

// Along columns as along rows, and of vectors.
TEST(Differentiate, ReductionsOfEveryKind) {
  const std::vector<std::pair<Value (*)(Value, PartialKind, Where), Shape>> reductions{
      {row_reduce, {"M", 6}}, {row_reduce, {1, 6}}, {col_reduce, {"M", 6}}, {col_reduce, {"M", 1}}};
  for (int i = 0; i < kPartialKindCount; ++i) {
    const auto kind = static_cast<PartialKind>(i);
    SCOPED_TRACE(info(kind).name);
    for (const auto& [reduce, shape] : reductions) {
      Case c;
      expect_gradients(c, reduce(c.wanted_input("x", shape), kind, Where::current()));
    }
  }
}

// Expected are the gradients of torch.amax(x) and torch.amax(abs(x)): elements that are equal to
// the largest share, a magnitude has its sign and at 0 none, and infinity is as large as itself.
TEST(Differentiate, TheLargestValuesOfATieShareTheirGradient) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  struct Tie {
    PartialKind kind;
    std::vector<double> x;
    std::vector<double> expected;  // of 12
  };
  const std::vector<Tie> ties{
      {PartialKind::max, {1, 3, -3, 3, 0, 3}, {0, 4, 0, 4, 0, 4}},
      {PartialKind::max, {-2, -2, -2, -2, -2, -2}, {2, 2, 2, 2, 2, 2}},
      {PartialKind::max, {0, 5, kInfinity, 1, -kInfinity, 2}, {0, 0, 12, 0, 0, 0}},
      {PartialKind::abs_max, {1, 3, -3, 3, 0, -3}, {0, 3, -3, 3, 0, -3}},
      {PartialKind::abs_max, {0, 0, 0, 0, 0, 0}, {0, 0, 0, 0, 0, 0}},
  };
  for (const Tie& tie : ties) {
    Graph graph;
    const Value x = graph.input("x", {2, 6});
    const Value columns = graph.input("columns", {6, 2});
    const Value g = graph.input("g", {2, 1});
    const Value of_columns = graph.input("of_columns", {1, 2});
    const std::vector<Value> gradients = differentiate(
        graph, {{row_reduce(x, tie.kind).id, g}, {col_reduce(columns, tie.kind).id, of_columns}},
        {x.id, columns.id});
    Inputs inputs{{"g", {12, 0}}, {"of_columns", {12, 0}}, {"x", tie.x}, {"columns", {}}};
    std::vector<double> expected = tie.expected;
    std::vector<double> expected_columns;
    for (size_t i = 0; i < 6; ++i) {
      inputs["x"].push_back(static_cast<double>(i));
      expected.push_back(0);
      inputs["columns"].insert(inputs["columns"].end(), {tie.x[i], static_cast<double>(i)});
      expected_columns.insert(expected_columns.end(), {tie.expected[i], 0});
    }
    const std::vector<Matrix> got = evaluate(graph, {gradients[0].id, gradients[1].id}, inputs, {});
    EXPECT_EQ(got[0].data, expected);
    EXPECT_EQ(got[1].data, expected_columns);
  }
}

TEST(Differentiate, MatmulInEveryLayout) {
  for (int layout = 0; layout < 4; ++layout) {
    Case c;
    const Transposes t{(layout & 1) != 0, (layout & 2) != 0};
    const Value a = c.wanted_input("a", t.a ? Shape{3, "M"} : Shape{"M", 3});
    const Value b = c.wanted_input("b", t.b ? Shape{4, 3} : Shape{3, 4});
    SCOPED_TRACE(layout);
    expect_gradients(c, matmul({{a, b, t}}));
  }
}

TEST(Differentiate, MatmulOfSegmentsAndVectors) {
  Case c;
  const Value a = c.wanted_input("a", {"M", 3});
  const Value b = c.wanted_input("b", {3, 4});
  const Value d = c.wanted_input("d", {"M", 2});
  const Value e = c.wanted_input("e", {4, 2});
  const Value v = c.wanted_input("v", {1, 4});
  const Value y = matmul({{a, b, {}}, {d, e, {false, true}}});
  const Value row = matmul({{v, e, {}}});                    // [1, 4] · [4, 2]
  const Value column = matmul({{y, v, {false, true}}});      // [M, 4] · [4, 1]
  const Value transposed = matmul({{v, b, {false, true}}});  // [1, 4] · [4, 3]
  expect_gradients(c, mul(add(mul(d, row), column), row_sum(mul(a, transposed))));
}

TEST(Differentiate, PairsSlicesAndRepeats) {
  for (const Dim& group : {Dim(2), Dim(4), Dim(8)}) {
    Case c;
    const Value x = c.wanted_input("x", {"M", 8});
    const Value a = split_pair(x, group, 0);
    const Value b = split_pair(x, group, 1);
    SCOPED_TRACE(group.text());
    expect_gradients(c, merge_pairs(a * b, a * a, group));
  }
  Case half;
  const Value x = half.wanted_input("x", {"M", 8});
  expect_gradients(half, split_pair(x, 4, 1));
  Case slices;
  const Value s = slices.wanted_input("x", {"M", 8});
  expect_gradients(slices, concat_columns({slice_columns(s, 1, 3) * slice_columns(s, 4, 3),
                                           slice_columns(s, 2, 2)}));
  Case repeats;
  expect_gradients(repeats, repeat_columns(repeats.wanted_input("x", {"M", 3}) * 2.0, 4));
}

// A weight of each head, of as many heads as a symbol says; rows of a table too, and one column.
TEST(Differentiate, RepetitionsOfAnUnknownNumber) {
  for (const Shape& shape : {Shape{1, 4}, Shape{"M", 4}, Shape{"M", 1}, Shape{1, 1}}) {
    SCOPED_TRACE(shape.text());
    Case c;
    c.sizes["H"] = 3;
    const Value x = c.wanted_input("x", shape);
    expect_gradients(
        c, repeat_columns(x * 2.0, "H") * c.table("t", {"M", shape.cols.constant() * Dim("H")}));
  }
}

// At 0 both have the derivative 0; besides, relu has 1 or 0 and abs 1 or -1.
TEST(Differentiate, ReluAndAbsAtTheirCorner) {
  for (const auto& [fn, expected] : {std::pair(Elementwise::relu, std::vector<double>{0, 0, 1}),
                                     std::pair(Elementwise::abs, std::vector<double>{-1, 0, 1})}) {
    Graph graph;
    const Value x = graph.input("x", {1, 3});
    const Value seed = graph.input("g", {1, 3});
    const Value y = elementwise(fn, {x});
    const Value gradient = differentiate(graph, {{y.id, seed}}, {x.id})[0];
    EXPECT_EQ(evaluate(graph, {gradient.id}, {{"x", {-2, 0, 2}}, {"g", {1, 1, 1}}}, {})[0].data,
              expected);
  }
}

TEST(Differentiate, NormsGatesAndRope) {
  Case rms;
  expect_gradients(rms,
                   rms_norm(rms.wanted_input("x", {"M", 6}), rms.wanted_input("w", {1, 6}), 1e-5));
  Case gemma;
  expect_gradients(
      gemma, rms_norm(gemma.wanted_input("x", {"M", 6}), gemma.wanted_input("w", {1, 6}), 1e-5, 1));
  Case layer;
  expect_gradients(layer,
                   layer_norm(layer.wanted_input("x", {"M", 6}), layer.wanted_input("w", {1, 6}),
                              layer.wanted_input("b", {1, 6}), 1e-5));
  Case gate;
  const Value g = gate.wanted_input("g", {"M", 4}, -3, 3);
  const Value u = gate.wanted_input("u", {"M", 4});
  expect_gradients(gate, swiglu(g, u) + geglu(u, g));
  for (bool half : {false, true}) {
    Case rotated;
    const Value cos = rotated.table("cos", {3, 2});
    const Value sin = rotated.table("sin", {3, 2});
    const Value position = rotated.graph.table("position", {"M", 1}, DType::i32);
    rotated.inputs["position"] = {0, 1, 2, 1, 0};
    expect_gradients(rotated,
                     rope(rotated.wanted_input("x", {"M", 8}), {cos, sin, position}, 2, 4, half));
  }
}

TEST(Differentiate, CrossEntropyWithIgnoredRows) {
  Case c;
  const Value logits = c.wanted_input("logits", {"M", 7}, -3, 3);
  const Value targets = c.graph.table("targets", {"M", 1}, DType::i32);
  c.inputs["targets"] = {3, -100, 0, 6, -100};
  expect_gradients(c, cross_entropy(logits, targets).mean);
}

TEST(Differentiate, CrossEntropyWithSmoothedLabelsZLossAndCappedLogits) {
  for (const CrossEntropyOptions options :
       {CrossEntropyOptions{.label_smoothing = 0.1}, CrossEntropyOptions{.z_loss = 0.01},
        CrossEntropyOptions{-1, 0.2, 0.01}}) {
    Case c;
    const Value logits = c.wanted_input("logits", {"M", 7}, -3, 3);
    const Value targets = c.graph.table("targets", {"M", 1}, DType::i32);
    c.inputs["targets"] = {3, static_cast<double>(options.ignore_index), 0, 6, 2};
    expect_gradients(c, cross_entropy(soft_cap(logits, 2), targets, options).mean);
  }
}

// torch.nn.functional.cross_entropy(l, targets, label_smoothing=0.1) in float64, its rows with
// reduction="none"; l[i][j] = 3 sin(5 i + j + 1).
TEST(Differentiate, SmoothedLabelsArePyTorchs) {
  Graph graph;
  const Value logits = graph.input("logits", {"M", 5});
  const Value targets = graph.table("targets", {"M", 1}, DType::i32);
  Inputs inputs;
  inputs["targets"] = {3, -100, 0, 4};
  for (int i = 1; i <= 20; ++i) inputs["logits"].push_back(3 * std::sin(i));
  const CrossEntropy loss = cross_entropy(logits, targets, {.label_smoothing = 0.1});
  const Value gradient = differentiate(graph, {{loss.mean.id, graph.constant(1)}}, {logits.id})[0];
  const std::vector<Matrix> got =
      evaluate(graph, {loss.mean.id, loss.rows.id, gradient.id}, inputs, {{"M", 4}});
  EXPECT_NEAR(got[0].data[0], 3.9858101418848872, 1e-14);
  const std::vector<double> rows{5.416198290960158, 0, 6.080942506302069, 0.4602896283924327};
  for (size_t i = 0; i < rows.size(); ++i) EXPECT_NEAR(got[1].data[i], rows[i], 1e-14) << i;
  const std::vector<double> of_row{0.1345301375992848, 0.16639258277380742, 0.010605593601345715,
                                   -0.3054986183485766, -0.006029695625861351};
  for (size_t j = 0; j < of_row.size(); ++j) {
    EXPECT_NEAR(got[2].data[j], of_row[j], 1e-14) << j;
    EXPECT_EQ(got[2].data[5 + j], 0) << "an ignored row";
  }
}

TEST(Differentiate, AttentionAndEmbedding) {
  for (const bool has_sinks : {false, true}) {
    Case c;
    c.sizes["M"] = 6;
    AttentionOptions options{.heads = 4, .kv_heads = 2, .head_dim = 2, .sequence = 3};
    const Value q = c.wanted_input("q", {"M", 8});
    const Value k = c.wanted_input("k", {"M", 4});
    const Value v = c.wanted_input("v", {"M", 4});
    if (has_sinks) options.sinks = c.wanted_input("sinks", {1, 4});
    expect_gradients(c, attention(q, k, v, options));
  }
  Case e;
  const Value ids = e.graph.table("ids", {"M", 1}, DType::i32);
  e.inputs["ids"] = {2, 0, 2, 1, 2};
  const Value table = e.wanted_input("table", {4, 3});
  const Value rows = embedding(table, ids);
  expect_gradients(e, rows * rows);

  // The padding row gets no gradient, as torch.nn.Embedding(padding_idx=2) has it.
  const auto gradient = [&](std::optional<int64_t> padding) {
    const Value y = embedding(table, ids, padding);
    const Value one = differentiate(e.graph, {{y.id, y}}, {table.id})[0];
    return evaluate(e.graph, {one.id}, e.inputs, {{"M", 5}})[0].data;
  };
  std::vector<double> expected = gradient(std::nullopt);
  EXPECT_NE(expected[6], 0);
  std::fill(expected.begin() + 6, expected.begin() + 9, 0);
  EXPECT_EQ(gradient(2), expected);
}

TEST(Differentiate, WhatLeadsNowhereIsNotBuilt) {
  Case c;
  const Value x = c.wanted_input("x", {"M", 4});
  const Value frozen = c.table("w", {3, 4});
  const Value y = linear(x, frozen);
  const int before = c.graph.size();
  differentiate(c.graph, {{y.id, c.table("seed", y.shape())}}, c.wanted);
  int products = 0;
  for (int id = before; id < c.graph.size(); ++id)
    products += c.graph.node(id).op == Op::matmul ? 1 : 0;
  EXPECT_EQ(products, 1);
}

}  // namespace
}  // namespace coda
