// SPDX-License-Identifier: Apache-2.0
// The gradient of a largest value on the CPU (largest_values.h); elements that are equal share it.
#include "cpu/largest_values.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace coda {
namespace largest_values {
namespace {

using testing::Each;

Tensors on_the_cpu(const Plan& plan, const DimValues& sizes, const Values& inputs) {
  return run(plan, sizes, inputs, 2);
}

class LargestValues : public testing::TestWithParam<Source> {};
INSTANTIATE_TEST_SUITE_P(Sources, LargestValues, testing::ValuesIn(kSources),
                         [](const auto& source) { return std::string(source.param.name); });

TEST_P(LargestValues, HaveAllOfTheirGradient) {
  for (const DType storage : {DType::f32, DType::bf16, DType::f16}) {
    for (const Objective objective : {Objective::memory, Objective::speed}) {
      for (const PartialKind kind : {PartialKind::max, PartialKind::abs_max}) {
        for (const bool of_rows : {true, false}) {
          SCOPED_TRACE(std::string(name_of(storage)) + " " + std::string(info(kind).name) +
                       (of_rows ? " of rows" : " of columns") +
                       (objective == Objective::speed ? ", fast" : ""));
          expect_gradients(GetParam(), storage, objective, kind, of_rows, on_the_cpu);
        }
      }
    }
  }
}

// Each value stands twice in its row: 65 columns and the same again.
TEST(LargestValuesOfATie, AreSharedEvenly) {
  for (const DType storage : {DType::f32, DType::bf16}) {
    Block b;
    b.storage = storage;
    const Value x = b.graph.input("x", {"M", kCols}, storage);
    const Value r = b.graph.input("r", {"M", 1}, DType::f32);
    b.wants_gradient(x, "d_x");
    b.seed(row_reduce(x + tanh(r) * 3.0, PartialKind::max), "largest");
    const DimValues sizes{{"M", kRows}};
    CompileOptions options;
    options.sizes = sizes;
    options.storage = storage;
    Values inputs = realistic_inputs(b, sizes, 5, 9);
    std::vector<double>& values = inputs.at("x");
    for (size_t i = 0; i < values.size(); ++i) {
      if (i % kCols >= kCols / 2) values[i] = values[i - kCols / 2];
    }
    const Tensors results = run(compile(b.graph, b.request, options).plan, sizes, inputs, 2);
    const std::vector<double> gradient = results.get("d_x");
    for (size_t row = 0; row < static_cast<size_t>(kRows); ++row) {
      double sum = 0;
      for (size_t j = 0; j < kCols / 2; ++j) {
        const double first = gradient[row * kCols + j];
        EXPECT_EQ(first, gradient[row * kCols + j + kCols / 2]);
        sum += 2 * first;
      }
      EXPECT_NEAR(sum, inputs.at("d_largest")[row], 1e-5);
    }
  }
}

// NaN is the largest, and equal to nothing: such a row has a NaN for a result, and no gradient.
TEST(LargestValuesOfATie, NaNHasNoGradient) {
  Block b;
  b.wants_gradient(b.graph.input("x", {"M", kCols}), "d_x");
  b.seed(row_reduce(b.graph.value(b.graph.find_input("x")) * 2.0, PartialKind::max), "largest");
  const DimValues sizes{{"M", 2}};
  CompileOptions options;
  options.sizes = sizes;
  Values inputs = realistic_inputs(b, sizes, 5, 9);
  inputs.at("x")[7] = NAN;
  const Tensors results = run(compile(b.graph, b.request, options).plan, sizes, inputs, 1);
  EXPECT_TRUE(std::isnan(results.get("largest")[0]));
  const std::vector<double> gradient = results.get("d_x");
  EXPECT_THAT(std::vector<double>(gradient.begin(), gradient.begin() + kCols), Each(0));
  EXPECT_NE(std::vector<double>(gradient.begin() + kCols, gradient.end()),
            std::vector<double>(kCols, 0));
}

}  // namespace
}  // namespace largest_values
}  // namespace coda
