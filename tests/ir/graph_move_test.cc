// SPDX-License-Identifier: Apache-2.0
// A Graph is a value: it moves with the Values that it made, a copy is independent of it; numbers
// stand beside Values in operators, and what cannot be is an error with the caller's line.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "coda/error.h"
#include "coda/graph.h"
#include "ir/evaluate_graph.h"

namespace coda {
namespace {

using testing::AllOf;
using testing::HasSubstr;

struct Net {
  Graph graph;
  Value x = graph.input("x", {"M", 4});
  Value y = x + x * x;
};

TEST(GraphMove, ValuesFollowTheirGraph) {
  Graph first;
  const Value x = first.input("x", {"M", 4});
  Graph second = std::move(first);
  EXPECT_EQ(x.graph.get(), &second);
  const Value y = x * 2;  // built after the move
  EXPECT_EQ(second.node(y.id).shape, (Shape{"M", 4}));
  std::vector<Graph> many;
  many.push_back(std::move(second));
  many.emplace_back();  // moves the first one again
  EXPECT_EQ(y.shape(), (Shape{"M", 4}));
  EXPECT_EQ(x + y, many[0].value((x + y).id));
  Graph assigned;
  assigned.input("old", {1, 1});
  assigned = std::move(many[0]);
  EXPECT_EQ(x.graph.get(), &assigned);
  EXPECT_EQ(assigned.find_input("old"), -1);
}

TEST(GraphMove, AStructThatHoldsBothMoves) {
  Net made;
  Net net = std::move(made);
  EXPECT_EQ(net.y.graph.get(), &net.graph);
  const Value z = net.x - net.y;
  EXPECT_EQ(z.graph, net.x.graph);
}

TEST(GraphMove, ACopyIsIndependent) {
  Net net;
  Graph copy = net.graph;
  const Value x = copy.value(net.x.id);
  EXPECT_NE(x.graph, net.x.graph);
  EXPECT_EQ((x + x * x).id, net.y.id);  // it is there already
  const int before = net.graph.size();
  exp(x);
  EXPECT_EQ(net.graph.size(), before);
  EXPECT_EQ(copy.size(), before + 1);
  net.graph = copy;  // Values of what was there before are of no use any more
  EXPECT_EQ(net.graph.size(), copy.size());
  EXPECT_EQ(net.graph.find_input("x"), x.id);
}

double value_of(Value v) { return evaluate(*v.graph, {v.id}, {{"x", {1.5}}}, {})[0].data[0]; }

TEST(Numbers, StandBesideValues) {
  Graph g;
  const Value x = g.input("x", {1, 1});
  const std::vector<std::pair<Value, double>> cases = {
      {x + 2, 3.5},
      {2 + x, 3.5},
      {x - 2.0, -0.5},
      {1.0 - x, -0.5},
      {x * 3, 4.5},
      {3.0 * x, 4.5},
      {x / 30.0, 0.05},
      {30.0 / x, 20},
      {-x, -1.5},
      {maximum(x, 0.0), 1.5},
      {maximum(2, x), 2},
      {minimum(x, 1), 1},
      {minimum(0.0, x), 0},
      {less(x, 2), 1},
      {less(2, x), 0},
      {equal(x, 1.5), 1},
      {equal(1, x), 0},
      {select(less(x, 2), 7.0, x), 7},
      {select(less(x, 1), 7.0, -1.0), -1},
  };
  for (const auto& [value, expected] : cases) {
    EXPECT_NEAR(value_of(value), expected, 1e-12);
  }
}

TEST(Numbers, AloneTheyHaveNoGraph) {
  try {
    maximum(1.0, 2.0);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("two numbers"), HasSubstr("graph_move_test.cc")));
  }
}

// The line is the operator's, not a header's of ours.
TEST(Numbers, AnOperatorsErrorNamesTheCallersLine) {
  Graph g;
  const Value x = g.input("x", {"M", 8});
  const Value y = g.input("y", {"M", 4});
  try {
    x + y;
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("graph_move_test.cc"));
  }
}

}  // namespace
}  // namespace coda
