// SPDX-License-Identifier: Apache-2.0
// The gradient of a largest value arrives, whole, at elements that are the largest, wherever the
// backward has them from: rounded memory while the maximum was of unrounded numbers, an inverse,
// the same operations once more in another program. Elements that are equal there share it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "cpu/plan_run.h"

namespace coda {
namespace largest_values {
namespace {

using testing::Each;

constexpr int64_t kRows = 37;
constexpr int64_t kCols = 130;

// Of z = x · Wᵀ + p: the values whose largest are taken, and which change as p does. What else is
// stored is what the backward may read instead of them.
struct Source {
  std::string_view name;
  std::function<Value(Block&, Value z)> build;
};

void stores(Block& b, Value v) { b.request.outputs.push_back({"stored", v}); }

const std::vector<Source> kSources{
    {"stored", [](Block& b, Value z) { return stores(b, z), z; }},
    {"made_in_a_products_tile", [](Block&, Value z) { return z; }},
    {"sum_of_a_stored_value",
     [](Block& b, Value z) { return stores(b, z), z + b.graph.input("v", {1, kCols}); }},
    {"by_the_inverse_of_a_sum",
     [](Block& b, Value z) { return stores(b, z + b.graph.input("v", {1, kCols})), z; }},
    {"by_the_inverse_of_a_factor",
     [](Block& b, Value z) {
       const Value v = b.graph.input("v", {"M", 1});
       return stores(b, z * rsqrt(v * v + 0.1)), z;
     }},
    {"made_again",
     [](Block& b, Value z) {
       stores(b, z);
       const Value u = b.graph.input("u", {"M", kCols}, b.storage);
       return z + u * tanh(u) * 0.3;
     }},
};

// What of p's gradient is of one line (a row, or a column) that has the largest value of `exact`.
void expect_shares(const std::vector<double>& exact, const std::vector<double>& gradient,
                   PartialKind kind, double g, double rounding) {
  const bool magnitudes = kind == PartialKind::abs_max;
  const auto size = [&](double x) { return magnitudes ? std::abs(x) : x; };
  double largest = -INFINITY;
  double scale = 0;
  for (const double x : exact) largest = std::max(largest, size(x));
  for (const double x : exact) scale = std::max(scale, std::abs(x));
  double sum = 0;
  double share = 0;
  for (size_t k = 0; k < exact.size(); ++k) {
    if (gradient[k] == 0) continue;
    EXPECT_GE(size(exact[k]), largest - rounding * scale);
    const double signless = magnitudes && exact[k] < 0 ? -gradient[k] : gradient[k];
    if (share == 0) share = signless;
    EXPECT_EQ(signless, share) << "equal values have equal shares";
    sum += signless;
  }
  EXPECT_NEAR(sum, g, 1e-5 * std::abs(g));
}

class LargestValues : public testing::TestWithParam<Source> {};
INSTANTIATE_TEST_SUITE_P(Sources, LargestValues, testing::ValuesIn(kSources),
                         [](const auto& source) { return std::string(source.param.name); });

void expect_gradients(const Source& source, DType storage, Objective objective, PartialKind kind,
                      bool of_rows) {
  Block b;
  b.storage = storage;
  const Value x = b.graph.input("x", {"M", 72}, storage);
  const Value p = b.graph.input("p", {"M", kCols}, storage);
  b.wants_gradient(p, "d_p");
  const Value z = linear(x, b.parameter("w", {kCols, 72})) + p;
  const Value values = source.build(b, z);
  b.seed(of_rows ? row_reduce(values, kind) : col_reduce(values, kind), "largest");
  const DimValues sizes{{"M", kRows}};
  CompileOptions options;
  options.sizes = sizes;
  options.storage = storage;
  options.objective = objective;
  const Plan plan = compile(b.graph, b.request, options).plan;
  const Values inputs = realistic_inputs(b, sizes, 5, 9);
  const Tensors results = run(plan, sizes, inputs, 2);
  const std::vector<double> exact = evaluate(b.graph, {values.id}, inputs, sizes)[0].data;
  const std::vector<double> gradient = results.get("d_p");
  const double rounding = storage == DType::f32 ? 1e-5 : storage == DType::f16 ? 0.004 : 0.03;
  const int64_t lines = of_rows ? kRows : kCols;
  for (int64_t line = 0; line < lines; ++line) {
    std::vector<double> of_line;
    std::vector<double> its_gradient;
    for (int64_t k = 0; k < (of_rows ? kCols : kRows); ++k) {
      const auto at = static_cast<size_t>(of_rows ? line * kCols + k : k * kCols + line);
      of_line.push_back(exact[at]);
      its_gradient.push_back(gradient[at]);
    }
    expect_shares(of_line, its_gradient, kind, inputs.at("d_largest")[static_cast<size_t>(line)],
                  rounding);
  }
}

TEST_P(LargestValues, HaveAllOfTheirGradient) {
  for (const DType storage : {DType::f32, DType::bf16, DType::f16}) {
    for (const Objective objective : {Objective::memory, Objective::speed}) {
      for (const PartialKind kind : {PartialKind::max, PartialKind::abs_max}) {
        for (const bool of_rows : {true, false}) {
          SCOPED_TRACE(std::string(name_of(storage)) + " " + std::string(info(kind).name) +
                       (of_rows ? " of rows" : " of columns") +
                       (objective == Objective::speed ? ", fast" : ""));
          expect_gradients(GetParam(), storage, objective, kind, of_rows);
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
