// SPDX-License-Identifier: Apache-2.0
// What breaks one scale for a tensor, and what then happens: a column of values far larger than all
// others, and a gradient that is far larger for one step. One product, y = x * wT, with its
// gradients on the CPU, against float64 of the stored bf16 values.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "coda/builders.h"
#include "coda/compile.h"
#include "coda/eight_bits.h"
#include "coda/program.h"
#include "coda/session.h"
#include "cpu/cpu_backend.h"
#include "runtime/eight_bit_scales.h"

namespace coda {
namespace eight_bit_outliers {
namespace {

constexpr int64_t kRows = 32;
constexpr int64_t kIn = 64;
constexpr int64_t kOut = 48;
constexpr int64_t kColumn = 5;  // of x, the one that is larger; its weights are 0
constexpr int64_t kRow = 3;     // of the gradient

std::vector<float> normal(int64_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> values;
  std::vector<float> made(static_cast<size_t>(count));
  for (float& value : made) value = values(random);
  return made;
}

// Of a from b, relative; without the row `left_out`.
double difference(const std::vector<float>& a, const std::vector<double>& b, int64_t cols,
                  int64_t left_out) {
  double squares = 0;
  double whole = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    if (static_cast<int64_t>(i) / cols == left_out) continue;
    squares += (a[i] - b[i]) * (a[i] - b[i]);
    whole += b[i] * b[i];
  }
  return std::sqrt(squares / whole);
}

double length_of_row(const std::vector<float>& a, int64_t cols, int64_t row) {
  double squares = 0;
  for (int64_t j = 0; j < cols; ++j) {
    const double value = a[static_cast<size_t>(row * cols + j)];
    squares += value * value;
  }
  return std::sqrt(squares);
}

// a [m, k] times b [n, k] transposed.
std::vector<double> product(const std::vector<float>& a, const std::vector<float>& b, int64_t m,
                            int64_t n, int64_t k) {
  std::vector<double> c(static_cast<size_t>(m * n));
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j)
      for (int64_t l = 0; l < k; ++l)
        c[static_cast<size_t>(i * n + j)] +=
            double{a[static_cast<size_t>(i * k + l)]} * double{b[static_cast<size_t>(j * k + l)]};
  return c;
}

std::vector<float> transposed(const std::vector<float>& a, int64_t rows, int64_t cols) {
  std::vector<float> made(a.size());
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < cols; ++j)
      made[static_cast<size_t>(j * rows + i)] = a[static_cast<size_t>(i * cols + j)];
  return made;
}

class Steps {
 public:
  Steps() : backend_(cpu::make_cpu_backend({.threads = 1})) {
    Graph graph;
    const Value x = graph.input("x", {"M", kIn}, DType::bf16);
    const Value w = graph.parameter("w", {kOut, kIn}, DType::bf16);
    const Value y = linear(x, w);
    CompileRequest request;
    request.outputs = {{"y", y}};
    request.seeds = {{y, graph.input("dy", {"M", kOut}, DType::bf16)}};
    request.gradients = {{x, "dx", DType::f32}};
    CompileOptions options;
    options.storage = DType::bf16;
    options.sizes = {{"M", kRows}};
    options.eight_bits = EightBits::fp8;
    Compiled compiled = compile(graph, request, options);
    session_ = std::make_unique<Session>(std::move(compiled.plan), *backend_, options.sizes);
    scales_ = std::make_unique<EightBitScales>(*backend_, compiled.first_scales, nullptr);
    scales_->bind(*session_);
    session_->allocate();
    std::vector<float> weights = normal(kOut * kIn, 1);
    for (int64_t i = 0; i < kOut; ++i) weights[static_cast<size_t>(i * kIn + kColumn)] = 0;
    set("w", weights);
  }

  void set(const char* name, const std::vector<float>& values) {
    session_->tensor(name).set(values);
  }
  std::vector<float> get(const char* name) const { return session_->tensor(name).floats(); }

  // Scales as they are; those of the next step are found.
  void run() {
    scales_->start_step();
    session_->forward();
    session_->backward();
    scales_->finish_step();
  }

  double error_of_y() const {
    return difference(get("y"), product(get("x"), get("w"), kRows, kOut, kIn), kOut, -1);
  }
  // Of all rows but kRow.
  double error_of_dx() const {
    return difference(get("dx"),
                      product(get("dy"), transposed(get("w"), kOut, kIn), kRows, kIn, kOut), kIn,
                      kRow);
  }

 private:
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Session> session_;
  std::unique_ptr<EightBitScales> scales_;
};

std::vector<float> with_larger_column(float factor) {
  std::vector<float> x = normal(kRows * kIn, 2);
  for (int64_t i = 0; i < kRows; ++i) x[static_cast<size_t>(i * kIn + kColumn)] *= factor;
  return x;
}

std::vector<float> with_larger_row(float factor) {
  std::vector<float> dy = normal(kRows * kOut, 3);
  for (int64_t j = 0; j < kOut; ++j) dy[static_cast<size_t>(kRow * kOut + j)] *= factor;
  return dy;
}

// e4m3 has 18 powers of two: a column 1000 times as large takes none of those that the others need.
// One 10^6 times as large leaves 0 of them.
TEST(EightBitOutliers, AColumnAThousandTimesAsLargeLeavesTheOthersTheirBits) {
  Steps steps;
  steps.set("dy", normal(kRows * kOut, 3));
  const auto error_with = [&](float factor) {
    steps.set("x", with_larger_column(factor));
    for (int i = 0; i < 2; ++i) steps.run();  // the second with the scale of the first
    return steps.error_of_y();
  };
  const double alone = error_with(1);
  EXPECT_GT(alone, 0.01);
  EXPECT_LT(alone, 0.05);
  EXPECT_LT(error_with(1000), 1.2 * alone);
  const double with_a_million = error_with(1e6F);
  EXPECT_GT(with_a_million, 0.99);
  EXPECT_LT(with_a_million, 1.01);
}

// What is 16 times larger than what is seen is forgotten at once, the rest slowly: 5 % a step.
TEST(EightBitOutliers, AColumnThatWasAMillionTimesAsLargeIsForgottenInOneStep) {
  Steps steps;
  steps.set("dy", normal(kRows * kOut, 3));
  steps.set("x", with_larger_column(1e6F));
  steps.run();
  steps.set("x", with_larger_column(1));
  steps.run();
  EXPECT_GT(steps.error_of_y(), 0.99);
  steps.run();
  EXPECT_LT(steps.error_of_y(), 0.05);
}

// A gradient's row that is 10^4 times as large for one step is cut off at 256 times what was
// largest before. The other rows of this step and of those behind it keep e5m2's precision.
TEST(EightBitOutliers, ASpikeInAGradientIsCutOffAndNothingElseIsLost) {
  Steps steps;
  steps.set("x", with_larger_column(1));
  steps.set("dy", with_larger_row(1));
  for (int i = 0; i < 2; ++i) steps.run();
  const double before = steps.error_of_dx();
  EXPECT_LT(before, 0.08);
  const double length = length_of_row(steps.get("dx"), kIn, kRow);
  steps.set("dy", with_larger_row(1e4F));
  steps.run();
  const double at_spike = length_of_row(steps.get("dx"), kIn, kRow) / length;
  EXPECT_GT(at_spike, 200);
  EXPECT_LT(at_spike, 2000);
  EXPECT_LT(steps.error_of_dx(), 1.2 * before);
  steps.set("dy", with_larger_row(1));
  steps.run();
  EXPECT_LT(steps.error_of_dx(), 1.2 * before);
}

// One of 10^9 times takes the scale along: of the next step all is 0, and the one behind it has its
// bits again. Weights do not change in such a step, and the run goes on.
TEST(EightBitOutliers, BehindASpikeOfABillionGradientsAreLostForOneStep) {
  Steps steps;
  steps.set("x", with_larger_column(1));
  steps.set("dy", with_larger_row(1e9F));
  steps.run();
  steps.set("dy", with_larger_row(1));
  steps.run();
  for (const float value : steps.get("dx")) EXPECT_EQ(value, 0);
  for (int i = 0; i < 3; ++i) {
    steps.run();
    EXPECT_LT(steps.error_of_dx(), 0.08);
  }
}

// The magnitudes are infinite, NaN, and ordinary.
TEST(EightBitScales, AMagnitudeThatIsNotFiniteChangesNothing) {
  const auto backend = cpu::make_cpu_backend({.threads = 1});
  const auto update = backend->prepare(parse_program(next_scales_program()), {{"N", 3}});
  Tensor sound(DType::f32, 1, 1);
  Tensor largest(DType::f32, 1, 3);
  Tensor remembered(DType::f32, 1, 3);
  Tensor scale(DType::f32, 1, 3);
  Tensor inverse(DType::f32, 1, 3);
  sound.fill(1);
  largest.set(std::vector<float>{HUGE_VALF, NAN, 2});
  remembered.set(std::vector<float>{3, 3, 1});
  scale.set(std::vector<float>{64, 64, 64});
  inverse.set(std::vector<float>{0.015625F, 0.015625F, 0.015625F});
  const TensorView tensors[] = {sound.view(), largest.view(), remembered.view(), scale.view(),
                                inverse.view()};
  update->run(tensors);
  EXPECT_EQ(remembered.floats(), (std::vector<float>{3, 3, 2}));
  EXPECT_EQ(scale.floats(), (std::vector<float>{64, 64, 64}));
}

}  // namespace
}  // namespace eight_bit_outliers
}  // namespace coda
