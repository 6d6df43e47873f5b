// SPDX-License-Identifier: Apache-2.0
// Squares of gradients that the programs which store them leave, run in float64: equal to the
// squares of the gradients, of models with and without blocks of rows; and what is left out.
#include <gtest/gtest.h>

#include "plan/after/result_squares.h"
#include "plan/plain_graph.h"
#include "plan/plan_evaluator.h"
#include "plan/random_graphs.h"

namespace coda {
namespace {

constexpr int64_t kRows = 130;  // three blocks, the last of 2

// Widths of whole spans; queries, keys and values are one product, whose gradient is stored in
// parts.
const LlamaSizes kOfSpans{.hidden = 64,
                          .heads = 2,
                          .kv_heads = 2,
                          .head_dim = 32,
                          .mlp = 128,
                          .vocab = 83,
                          .sequence = Dim("T")};

struct Squared {
  Block block;
  Plan plan;
  std::set<std::string> stored;

  Squared(bool is_tied, int64_t loss_rows, bool accumulate, const LlamaSizes& sizes = kOfSpans) {
    llama_model(block, 2, is_tied, sizes);
    block.request.seeds[0].is_early = true;
    for (GradientRequest& g : block.request.gradients) g.accumulate = accumulate;
    CompileOptions options;
    options.sizes = {{"M", kRows}, {"T", kRows}};
    options.loss_rows = loss_rows;
    options.overwrite_saved = true;
    plan = compile(block.graph, block.request, options).plan;
    std::map<std::string, std::string> results;
    for (const GradientRequest& g : block.request.gradients) results[g.name] = g.name + ".squares";
    stored = store_squares(plan, results);
  }
};

TEST(ResultSquares, AreThoseOfWhatIsStored) {
  for (const bool is_tied : {false, true}) {
    for (const int64_t loss_rows : {0, 64}) {
      for (const bool accumulate : {false, true}) {
        SCOPED_TRACE("tied " + std::to_string(is_tied) + ", blocks of " +
                     std::to_string(loss_rows) + ", accumulate " + std::to_string(accumulate));
        const Squared s(is_tied, loss_rows, accumulate);
        const DimValues sizes{{"M", kRows}, {"T", kRows}};
        PlanEvaluator evaluator(s.plan, sizes);
        evaluator.values = random_inputs(s.block.graph, sizes, 3);
        if (accumulate) {
          for (const GradientRequest& g : s.block.request.gradients) {
            const Shape& shape = s.plan.tensor(g.name).decl.shape;
            const auto count = static_cast<size_t>(shape.rows.constant() * shape.cols.constant());
            evaluator.values[g.name] = std::vector<double>(count, 0.5);
          }
        }
        evaluator.run(s.plan.forward);
        evaluator.forget_temporaries();
        evaluator.run(s.plan.backward);
        for (const std::string& name : s.stored) {
          const std::vector<double>& gradient = evaluator.values.at(name);
          const std::vector<double>& squares = evaluator.values.at(name + ".squares");
          ASSERT_EQ(squares.size() * kPartialSpan, gradient.size()) << name;
          for (size_t span = 0; span < squares.size(); ++span) {
            double sum = 0;
            for (size_t i = 0; i < kPartialSpan; ++i) {
              const double g = gradient[span * kPartialSpan + i];
              sum += g * g;
            }
            ASSERT_NEAR(squares[span], sum, 1e-12 * sum) << name << ", span " << span;
          }
        }
      }
    }
  }
}

// All matrices but the embedding's, to whose gradient a call adds last, and the head's where it is
// added up by blocks.
TEST(ResultSquares, OfEveryProductThatIsAGradient) {
  for (const bool is_tied : {false, true}) {
    for (const int64_t loss_rows : {0, 64}) {
      const Squared s(is_tied, loss_rows, false);
      for (const GradientRequest& g : s.block.request.gradients) {
        const bool is_vector = s.plan.tensor(g.name).decl.shape.rows.is(1);
        const bool is_left_out =
            is_vector || g.name == "d_embed" || (g.name == "d_head" && loss_rows > 0);
        EXPECT_EQ(s.stored.contains(g.name), !is_left_out) << g.name;
      }
    }
  }
}

TEST(ResultSquares, RowsThatAreNoWholeSpansAreLeftOut) {
  LlamaSizes sizes = kOfSpans;
  sizes.mlp = 96;
  const Squared s(false, 0, false, sizes);
  for (const GradientRequest& g : s.block.request.gradients) {
    const bool is_down = g.name.find("down") != std::string::npos;
    EXPECT_FALSE(is_down && s.stored.contains(g.name)) << g.name;
  }
  EXPECT_FALSE(s.stored.empty());
  for (const std::string& name : s.stored)
    EXPECT_TRUE(s.plan.tensor(name).decl.shape.cols.is(64)) << name;
}

}  // namespace
}  // namespace coda
