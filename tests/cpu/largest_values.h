// SPDX-License-Identifier: Apache-2.0
// Graphs with largest values, whose gradient a backend is to bring, whole, to elements that are the
// largest, wherever the backward has them from: rounded memory while the maximum was of unrounded
// numbers, an inverse, the same operations once more in another program.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "cpu/plan_run.h"

namespace coda::largest_values {

inline constexpr int64_t kRows = 37;
inline constexpr int64_t kCols = 130;

// Of z = x · Wᵀ + p: the values whose largest are taken, and which change as p does. What else is
// stored is what the backward may read instead of them.
struct Source {
  std::string_view name;
  std::function<Value(Block&, Value z)> build;
};

inline void stores(Block& b, Value v) { b.request.outputs.push_back({"stored", v}); }

inline const std::vector<Source> kSources{
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
    {"recomputed",
     [](Block& b, Value z) {
       stores(b, z);
       const Value u = b.graph.input("u", {"M", kCols}, b.storage);
       return z + u * tanh(u) * 0.3;
     }},
};

// What of p's gradient is of one line (a row, or a column) that has the largest value of `exact`.
inline void expect_shares(const std::vector<double>& exact, const std::vector<double>& gradient,
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

using RunPlan = std::function<Tensors(const Plan&, const DimValues&, const Values&)>;

inline void expect_gradients(const Source& source, DType storage, Objective objective,
                             PartialKind kind, bool of_rows, const RunPlan& run_plan) {
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
  const Tensors results = run_plan(plan, sizes, inputs);
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

}  // namespace coda::largest_values
