// SPDX-License-Identifier: Apache-2.0
// The backward of a program takes in every reduction that the program leaves as partials; those of
// the library's programs are right too. The
// reference is finite differences: how much the sum of all outputs, each times its upstream
// gradient, changes with each input, evaluated in float64.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "coda/compile.h"
#include "coda/lift.h"
#include "ir/evaluate_graph.h"
#include "plan/plain_graph.h"
#include "plan/plan_evaluator.h"
#include "program/evaluate.h"
#include "program/library_programs.h"

namespace coda {
namespace derived_backward {
namespace {

const DimValues kSizes{{"M", 5}, {"N", 70}, {"K", 3}, {"S", 4}, {"H", 3}};

struct Derivation {
  Graph graph;
  CompileRequest request;
};

void derive(const std::vector<Program>& programs, Derivation& d) {
  LiftedTensors tensors;
  for (const Program& program : programs) lift(program, d.graph, tensors);
  reduce_partials(tensors);
  d.request = program_request(d.graph, tensors, true);
}

Values random_inputs(const Graph& graph) {
  std::mt19937_64 random(7);
  std::normal_distribution<double> normal(0, 0.5);
  Values inputs;
  for (int id = 0; id < graph.size(); ++id) {
    const Node& n = graph.node(id);
    if (n.op != Op::input) continue;
    std::vector<double>& values = inputs[n.name];
    values.resize(
        static_cast<size_t>(n.shape.rows.evaluate(kSizes) * n.shape.cols.evaluate(kSizes)));
    // An index: of a row of a table, or of a column.
    for (double& v : values)
      v = n.dtype == DType::i32 ? static_cast<double>(random() % 4) : normal(random);
    if (n.shape.is_scalar()) values[0] = std::abs(values[0]);  // one over a size: a root is taken
  }
  return inputs;
}

double weighted_outputs(const Derivation& d, const Values& inputs) {
  std::vector<int> roots;
  for (const SeededOutput& seed : d.request.seeds) roots.push_back(seed.output.id);
  const std::vector<Matrix> outputs = evaluate(d.graph, roots, inputs, kSizes);
  double sum = 0;
  for (size_t i = 0; i < roots.size(); ++i) {
    const std::vector<double>& weights =
        inputs.at(d.graph.node(d.request.seeds[i].cotangent.id).name);
    for (size_t k = 0; k < weights.size(); ++k) sum += weights[k] * outputs[i].data[k];
  }
  return sum;
}

void expect_gradients_are_finite_differences(const std::vector<Program>& programs) {
  SCOPED_TRACE(text(programs.back()));
  Derivation d;
  derive(programs, d);
  CompileOptions options;
  options.sizes = kSizes;
  const Plan plan = compile(d.graph, d.request, options).plan;
  Values inputs = random_inputs(d.graph);
  PlanEvaluator evaluator(plan, kSizes);
  evaluator.values = inputs;
  evaluator.run(plan.forward);
  evaluator.forget_temporaries();
  evaluator.run(plan.backward);
  ASSERT_FALSE(d.request.gradients.empty());
  for (const GradientRequest& wanted : d.request.gradients) {
    std::vector<double>& input = inputs[d.graph.node(wanted.input.id).name];
    const std::vector<double>& gradient = evaluator.values.at(wanted.name);
    ASSERT_EQ(gradient.size(), input.size());
    for (size_t k = 0; k < input.size(); k += 1 + input.size() / 9) {
      const double before = input[k];
      constexpr double kStep = 1e-5;
      input[k] = before + kStep;
      const double above = weighted_outputs(d, inputs);
      input[k] = before - kStep;
      const double below = weighted_outputs(d, inputs);
      input[k] = before;
      EXPECT_NEAR(gradient[k], (above - below) / (2 * kStep), 1e-6 * (1 + std::abs(gradient[k])))
          << wanted.name << " " << k;
    }
  }
}

Program product_with(const std::string& statement) {
  return parse_program("program p {\n  y = gemm(x[M, K], w[N, K])\n  store(y, y)\n  " + statement +
                       "\n}\n");
}

TEST(DerivedBackward, TakesInThePartialsThatNoFinalizerCombines) {
  for (const char* partial :
       {"row_partial(p, sum(y * y))", "column_partial(p, sum(exp(y)))",
        "row_partial(p, log_sum_exp(y))", "column_partial(p, log_sum_exp(y))",
        "row_partial(p, mean_m2(y))", "row_partial(p, max(y))", "column_partial(p, max(exp(y)))",
        "row_partial(p, abs_max(y))", "column_partial(p, abs_max(y))"})
    expect_gradients_are_finite_differences({product_with(partial)});
}

TEST(DerivedBackward, TakesInAValueThatIsSeenInPartialsAlone) {
  for (const char* kind : {"log_sum_exp", "max", "abs_max"}) {
    expect_gradients_are_finite_differences({parse_program(
        "program p {\n  row_partial(p, " + std::string(kind) + "(gemm(x[M, K], w[N, K])))\n}\n")});
  }
}

TEST(DerivedBackward, TakesInTheSingleResultsOfALogSumExp) {
  expect_gradients_are_finite_differences(
      {product_with("row_partial(p, log_sum_exp(y))"), parse_program(R"(program f {
  store(largest, combine_rows(log_sum_exp(p[M, N]), max))
  store(rest, combine_rows(log_sum_exp(p), log_sum))
})")});
}

TEST(DerivedBackward, TakesInASoftmaxWithItsMaximumSubtracted) {
  expect_gradients_are_finite_differences(
      {product_with("row_partial(p, max(y))"),
       parse_program("program f {\n  store(m, combine_rows(max(p[M, N])))\n}\n"),
       parse_program(R"(program exponentials {
  e = exp(tile(y[M, N]) - per_row(m[M]))
  store(e, e)
  row_partial(q, sum(e))
})"),
       parse_program("program g {\n  store(r, 1 / combine_rows(sum(q[M, N])))\n}\n"),
       parse_program("program s {\n  store(softmax, tile(e[M, N]) * per_row(r[M]))\n}\n")});
}

TEST(DerivedBackward, TakesInTheScaleOfAQuantiser) {
  expect_gradients_are_finite_differences(
      {product_with("row_partial(p, abs_max(y))"),
       parse_program("program f {\n"
                     "  store(scale, max(combine_rows(abs_max(p[M, N])) / 448, 1e-12))\n}\n"),
       parse_program("program q {\n  store(q, tile(y[M, N]) / per_row(scale[M]))\n}\n")});
}

TEST(DerivedBackward, TakesInTheLargestOfCappedLogits) {
  expect_gradients_are_finite_differences({parse_program(R"(program p {
  y = 3 * tanh(gemm(x[M, K], w[N, K]) / 3)
  store(y, y)
  row_partial(largest, max(y))
  column_partial(of_columns, abs_max(y))
})")});
}

// Of a number of heads that is a symbol.
TEST(DerivedBackward, TakesInAWeightOfEachHead) {
  expect_gradients_are_finite_differences({parse_program(R"(program p {
  x = gemm(x[M, K], w[4*H, K])
  scale = repeat_group(rsqrt(reduce_group(x * x, 4) * 0.25 + 0.1), 4)
  store(y, x * scale * per_column(g[4], repeat=H))
})")});
  expect_gradients_are_finite_differences({parse_program(R"(program p {
  store(y, gemm(x[M, K], w[4*H, K]) * tile(table[M, 4], repeat=H))
})")});
}

TEST(DerivedBackward, TakesInWhatBendsAtZero) {
  expect_gradients_are_finite_differences(
      {product_with("store(z, relu(y) * where(y <= 0.25, y, 2))")});
  expect_gradients_are_finite_differences({product_with("store(z, abs(y) * (y != 3))")});
}

// The backward makes the mask again.
TEST(DerivedBackward, TakesInDropout) {
  expect_gradients_are_finite_differences({product_with(
      "store(z, where(random(5, per_row(row[M]) * 0, column_index()) < 0.25, 0, y / 0.75))")});
}

// The forward stays as it is: its maximum is of the product before the rounding to bf16, and no y
// that the backward reads is equal to it.
TEST(DerivedBackward, FindsTheLargestOfWhatWasRoundedBehindItsMaximum) {
  const std::vector<Program> forward{
      parse_program(R"(program p {
  y = gemm(x[M, K], w[N, K])
  store(y:bf16, y)
  row_partial(p, max(y))
})"),
      parse_program("program f {\n  store(largest, combine_rows(max(p[M, N])))\n}\n")};
  Derivation d;
  derive(forward, d);
  CompileOptions options;
  options.sizes = kSizes;
  const Plan plan = compile(d.graph, d.request, options).plan;
  Values values = random_inputs(d.graph);
  values.at("grad_of_y").assign(values.at("grad_of_y").size(), 0);
  const auto run = [&](const Program& program) {
    for (auto& [name, stored] :
         program::evaluate(program, kSizes, values, {.round_stored = true, .in_fp32 = true}))
      values[name] = stored;
  };
  for (const Program& program : forward) run(program);
  const Values of_forward = values;
  for (const PlanStep& step : plan.backward) {
    if (const auto* program = std::get_if<Program>(&step.work)) run(*program);
  }
  const size_t rows = of_forward.at("largest").size();
  const size_t columns = of_forward.at("y").size() / rows;
  const size_t depth = of_forward.at("x").size() / rows;
  for (size_t row = 0; row < rows; ++row) {
    const auto first = of_forward.at("y").begin() + static_cast<std::ptrdiff_t>(row * columns);
    const double largest = *std::max_element(first, first + static_cast<std::ptrdiff_t>(columns));
    EXPECT_NE(largest, of_forward.at("largest")[row]);
    const auto ties = static_cast<double>(
        std::count(first, first + static_cast<std::ptrdiff_t>(columns), largest));
    for (size_t k = 0; k < depth; ++k) {
      double expected = 0;
      for (size_t j = 0; j < columns; ++j) {
        if (first[static_cast<std::ptrdiff_t>(j)] == largest)
          expected +=
              of_forward.at("grad_of_largest")[row] / ties * of_forward.at("w")[j * depth + k];
      }
      EXPECT_NEAR(values.at("grad_to_x")[row * depth + k], expected, 1e-6);
    }
  }
}

class LibraryBackward : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Programs, LibraryBackward, testing::ValuesIn(tests::library_names()),
                         tests::name_of_library_test);

TEST_P(LibraryBackward, IsWhatFiniteDifferencesSay) {
  std::vector<Program> programs;
  for (const std::string& name : tests::with_makers(GetParam()))
    programs.push_back(tests::library_program(name));
  expect_gradients_are_finite_differences(programs);
}

// The angles of positions are no results of anything.
TEST(DerivedBackward, LeavesOutTablesWhoseRowsAreGathered) {
  Derivation d;
  derive({tests::library_program("rope")}, d);
  std::set<std::string> names;
  for (const GradientRequest& wanted : d.request.gradients) names.insert(wanted.name);
  EXPECT_EQ(names, (std::set<std::string>{"grad_to_h", "grad_to_r", "grad_to_w"}));
}

// What a finalizer made of partials is asked for, not the partials themselves again.
TEST(DerivedBackward, LeavesPartialsToTheFinalizerThatCombinesThem) {
  Derivation d;
  LiftedTensors tensors;
  lift(product_with("row_partial(p, sum(y * y))"), d.graph, tensors);
  lift(parse_program("program f {\n  store(r, rsqrt(combine_rows(sum(p[M, N])) + 1))\n}\n"),
       d.graph, tensors);
  reduce_partials(tensors);
  EXPECT_TRUE(tensors.values.contains("r"));
  EXPECT_FALSE(tensors.values.contains("p"));
}

}  // namespace
}  // namespace derived_backward
}  // namespace coda
