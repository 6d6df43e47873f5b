// SPDX-License-Identifier: Apache-2.0
// Operations one by one compute what the program does, and each of them is a step of its own.
#include "measure/one_by_one.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gpu/lower.h"
#include "measure/guarded_run.h"
#include "measure/random_inputs.h"
#include "program/evaluate.h"
#include "program/library_programs.h"
#include "program/step_table.h"

namespace coda {
namespace operations_one_by_one {
namespace {

const DimValues kSizes{{"M", 7}, {"N", 20}, {"K", 5}};

// What the plan's steps store, each in float64, one after the other.
program::TensorValues results_of(const Plan& plan, program::TensorValues values) {
  for (const PlanStep& step : plan.forward) {
    for (auto& [name, stored] : program::evaluate(std::get<Program>(step.work), kSizes, values))
      values[name] = std::move(stored);
  }
  return values;
}

void expect_the_same(const std::string& statements, size_t operations) {
  const Program program = parse_program("program p {\n" + statements + "\n}\n");
  const std::optional<Plan> plan = measure::one_by_one(program);
  ASSERT_TRUE(plan) << statements;
  EXPECT_EQ(plan->forward.size(), operations) << statements;
  const program::TensorValues inputs = measure::random_inputs(program, kSizes, 3);
  const program::TensorValues computed = results_of(*plan, inputs);
  for (const auto& [name, values] : program::evaluate(program, kSizes, inputs))
    EXPECT_EQ(computed.at(name), values) << name;
  for (const PlanStep& step : plan->forward) {
    const Program& one = std::get<Program>(step.work);
    EXPECT_LE(std::count_if(one.steps.begin(), one.steps.end(), program::is_elementwise), 2);
  }
}

TEST(OneByOne, ComputesWhatTheProgramDoes) {
  expect_the_same(
      "y = gemm(x[M, K], w[N, K])\nstore(y, y)\nstore(z, silu(y * per_row(r[M])))\n"
      "row_partial(s, sum(y * y))",
      5);
  expect_the_same(
      "g, u = split_pairs(gemm(x[M, K], w[2*N, K]), concatenated)\n"
      "store(a, silu(g) * u)",
      5);
  expect_the_same(
      "y = gemm(x[M, K], w[N, K]) + tile(t[K, N], rows=ids[M])\n"
      "store(chosen, select_column(y, per_row(target[M]:i32)))\nstore(y, y)",
      3);
}

// Scales of vectors are made where they are used.
TEST(OneByOne, VectorsAreNoOperations) {
  expect_the_same("store(y, tile(x[M, N]) * (per_row(a[M]) * per_row(b[M])) + 1)", 2);
}

// Beside pairs a partial is of half the columns; alone it is of all.
TEST(OneByOne, APartialBesidePairsHasItsOwnColumns) {
  const Program program = parse_program(
      "program p {\na, b = split_pairs(tile(y[M, 2*N]), concatenated)\n"
      "store(z, merge_pairs(b * 2, a, concatenated))\n"
      "row_partial(s, sum(tile(y) * tile(x[M, 2*N])))\n}");
  const std::optional<Plan> plan = measure::one_by_one(program);
  ASSERT_TRUE(plan);
  const program::TensorValues inputs = measure::random_inputs(program, kSizes, 3);
  const program::TensorValues computed = results_of(*plan, inputs);
  const program::TensorValues wanted = program::evaluate(program, kSizes, inputs);
  EXPECT_EQ(computed.at("z"), wanted.at("z"));
}

// Finalizers aside, whatever has operations between its loads and its stores.
TEST(OneByOne, EachProgramOfTheLibraryHasKernelsForThem) {
  const DimValues sizes{{"M", 16384}, {"N", 2048}, {"K", 2048}, {"S", 4096}, {"H", 16}};
  size_t count = 0;
  for (const std::string& name : tests::library_names()) {
    const Program program = tests::library_program(name);
    const auto is_operation = [&](const Step& step) {
      return step.shape.is_tensor() && !program::is_effect(step) && !program::is_tile_load(step);
    };
    const bool is_fused =
        std::count_if(program.steps.begin(), program.steps.end(), is_operation) > 1;
    const std::optional<Plan> plan = measure::one_by_one(program);
    ASSERT_EQ(plan.has_value() || !is_fused, true) << name;
    if (!plan) continue;
    ++count;
    for (const PlanStep& step : plan->forward)
      EXPECT_NO_THROW(gpu::lower(std::get<Program>(step.work), sizes, {}))
          << name << " " << step.name;
  }
  EXPECT_GT(count, 25U);
}

// The sum is added to what the tensor holds, and no other tensor takes its place.
TEST(OneByOne, AddsInPlace) {
  expect_the_same("store(dw, tile(dw[N, K]) + gemm(dy[M, N], x[M, K], tn))", 3);
}

TEST(OneByOne, IsNothingOfOneOperationOrOfAFinalizer) {
  const auto of = [](const std::string& statement) {
    return measure::one_by_one(parse_program("program p {\n" + statement + "\n}\n")).has_value();
  };
  EXPECT_FALSE(of("store(y, gemm(x[M, K], w[N, K]))"));
  EXPECT_FALSE(of("store(r, combine_rows(sum(p[M, N])) * 2)"));
}

}  // namespace
}  // namespace operations_one_by_one
}  // namespace coda
