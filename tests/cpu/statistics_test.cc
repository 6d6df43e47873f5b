// SPDX-License-Identifier: Apache-2.0
// Row statistics that are more than one partial: over a width that gets its number when the plan is
// run, and about the mean of rows that lie in their tile by pairs, also with means far from zero.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "cpu/plan_run.h"

namespace coda {
namespace {

using ::testing::ElementsAre;
using ::testing::IsNan;

// Largest relative error of the plan's outputs and gradients in fp32, against float64.
double largest_error(const Block& b, const DimValues& sizes, double mean) {
  CompileOptions options;
  options.sizes = sizes;
  const Plan plan = compile(b.graph, b.request, options).plan;
  Values inputs = realistic_inputs(b, sizes, 3, 9);
  for (double& x : inputs.at("x")) x = static_cast<float>(x + mean);
  const Tensors results = run(plan, sizes, inputs, 2);
  double largest = 0;
  for (const auto& [name, value] : plain_values(b.graph, b.request, inputs, sizes)) {
    largest = std::max(largest, std::sqrt(squared_error(results.get(name), value)));
  }
  return largest;
}

TEST(Statistics, OverAWidthThatIsKnownWhenThePlanRuns) {
  for (const int64_t width : {20, 64, 130, 1000}) {
    Block b;
    const Value x = b.graph.input("x", {"M", "N"});
    b.wants_gradient(x, "d_x");
    const Value w = b.parameter("n.w", {1, "N"});
    const Value h = layer_norm(rms_norm(x, w, 1e-5), w, b.parameter("n.b", {1, "N"}), 1e-2);
    b.seed(linear(h, b.parameter("w", {40, "N"})), "out");
    EXPECT_LT(largest_error(b, {{"M", 37}, {"N", width}}, 0), 3e-6) << width;
  }
}

// The tables rotate by an angle, so that the rows' members have means of their own.
TEST(Statistics, AboutTheMeanOfPairs) {
  for (const bool half : {false, true}) {
    for (const double mean : {0.0, 30.0}) {
      Block b;
      const Value x = b.graph.input("x", {"M", 192});
      b.wants_gradient(x, "d_x");
      const RopeTables tables{b.graph.table("cos", {9, 8}), b.graph.table("sin", {9, 8}),
                              b.graph.table("position", {"M", 1}, DType::i32)};
      const Value turned = rope(linear(x, b.parameter("w", {192, 192})) + x, tables, 12, 16, half);
      const Value normal =
          layer_norm(turned, b.parameter("n.w", {1, 192}), b.parameter("n.b", {1, 192}), 1e-5);
      b.seed(linear(normal, b.parameter("o", {72, 192})), "out");
      EXPECT_LT(largest_error(b, {{"M", 70}}, mean), mean == 0 ? 3e-6 : 3e-5) << half << mean;
    }
  }
}

TEST(Statistics, ReductionsOfEveryKind) {
  for (int i = 0; i < kPartialKindCount; ++i) {
    const auto kind = static_cast<PartialKind>(i);
    SCOPED_TRACE(info(kind).name);
    Block b;
    reductions_of_product(b, kind);
    for (const int64_t rows : {1, 70}) EXPECT_LT(largest_error(b, {{"M", rows}}, 0), 3e-6) << rows;
  }
}

// Logits of -inf are those of tokens that are masked out: they weigh nothing, whole spans of them
// too. Large logits that differ little keep all digits of their entropy. A row of -inf has none.
TEST(Statistics, AnEntropyOfMaskedAndOfLargeValues) {
  Block b;
  const Value x = b.graph.input("x", {"M", 200});
  b.request.outputs.push_back({"rows", row_entropy(x)});
  const Value turned = b.graph.input("turned", {200, "M"});
  b.request.outputs.push_back({"columns", col_reduce(turned, PartialKind::entropy)});
  std::vector<double> values(size_t{3} * 200, -INFINITY);
  for (const size_t j : {70, 71, 190, 191}) values[j] = 2;  // row 0: four tokens alike
  for (size_t j = 0; j < 200; ++j) values[200 + j] = 30000 + static_cast<double>(j % 2);
  const DimValues sizes{{"M", 3}};
  CompileOptions options;
  options.sizes = sizes;
  Values inputs{{"x", values}, {"turned", {}}};
  for (size_t j = 0; j < 200; ++j)
    for (const size_t row : {0, 200, 400}) inputs.at("turned").push_back(values[row + j]);
  const Tensors results = run(compile(b.graph, b.request, options).plan, sizes, inputs, 1);
  const double p = 1 / (1 + std::exp(-1));  // of a token of the upper half, times 100
  const double large = std::log(100) - p * std::log(p) - (1 - p) * std::log(1 - p);
  for (const char* name : {"rows", "columns"}) {
    const std::vector<double> entropies = results.get(name);
    EXPECT_NEAR(entropies[0], std::log(4), 1e-6) << name;
    EXPECT_NEAR(entropies[1], large, 1e-6) << name;
    EXPECT_TRUE(std::isnan(entropies[2])) << name;
  }
}

// A maximum of magnitudes is that of values below zero too, and NaN where one value is.
TEST(Statistics, AMaximumKeepsNaN) {
  Block b;
  const Value x = b.graph.input("x", {"M", 70});
  b.request.outputs.push_back({"rows", row_reduce(x, PartialKind::abs_max)});
  b.request.outputs.push_back({"columns", col_reduce(x, PartialKind::abs_max)});
  Values inputs{{"x", std::vector<double>(size_t{3} * 70, -2)}};
  inputs.at("x")[69] = -3;
  inputs.at("x")[70 + 66] = std::nan("");
  const DimValues sizes{{"M", 3}};
  CompileOptions options;
  options.sizes = sizes;
  const Tensors results = run(compile(b.graph, b.request, options).plan, sizes, inputs, 1);
  EXPECT_THAT(results.get("rows"), ElementsAre(3, IsNan(), 2));
  const std::vector<double> columns = results.get("columns");
  for (size_t j = 0; j < columns.size(); ++j) {
    if (j == 66) {
      EXPECT_TRUE(std::isnan(columns[j]));
    } else {
      EXPECT_EQ(columns[j], j == 69 ? 3 : 2) << j;
    }
  }
}

}  // namespace
}  // namespace coda
