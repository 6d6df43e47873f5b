// SPDX-License-Identifier: Apache-2.0
// The reference interpreter against cases computed by hand, and its partials with their finalizers
// against reductions of the whole row or column, for all kinds, widths and ragged sizes.
#include "program/evaluate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "coda/error.h"
#include "program/random_program.h"

namespace coda::program {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pointwise;

TensorValues run(const std::string& body, const DimValues& sizes, const TensorValues& inputs,
                 const EvaluateOptions& options = {}) {
  return evaluate(parse_program("program p {\n" + body + "\n}"), sizes, inputs, options);
}

// Both start from the scalar as it is given, and the second from what the first has left.
TEST(Evaluate, CopiesTransposedAndMagnitudes) {
  const TensorValues inputs = {{"x", {1, -5, 2, 3, 0, 4}}, {"largest", {4.5}}};
  const TensorValues result =
      run("x = tile(x[2, 3])\nstore_transposed(t, x)\nabs_max_into(largest, x * 0.5)\n"
          "abs_max_into(largest, x)",
          {}, inputs);
  EXPECT_EQ(result.at("t"), (std::vector<double>{1, 3, -5, 0, 2, 4}));
  EXPECT_EQ(result.at("largest"), std::vector<double>{5});
  const TensorValues less = run("abs_max_into(largest, tile(x[2, 3]) * 0.5)", {}, inputs);
  EXPECT_EQ(less.at("largest"), std::vector<double>{4.5});
}

TEST(Evaluate, GemmInAllLayoutsAndSegments) {
  const TensorValues inputs = {{"a", {1, 2, 3, 4, 5, 6}},   // [2, 3]
                               {"at", {1, 4, 2, 5, 3, 6}},  // [3, 2]
                               {"b", {1, 0, 2, 1, 0, 3}},   // [3, 2]
                               {"bt", {1, 2, 0, 0, 1, 3}},  // [2, 3]
                               {"c", {10, 20}},
                               {"d", {1, 2}}};  // [2, 1], [1, 2]
  const std::vector<double> product = {5, 11, 14, 23};
  for (const char* operands : {"a[2, 3], b[3, 2], nn", "a[2, 3], bt[2, 3], nt",
                               "at[3, 2], b[3, 2], tn", "at[3, 2], bt[2, 3], tt"}) {
    EXPECT_EQ(run(std::string("store(o, gemm(") + operands + "))", {}, inputs).at("o"), product)
        << operands;
  }
  EXPECT_THAT(run("store(o, gemm(a[2, 3], b[3, 2], nn; c[2, 1], d[1, 2], nn))", {}, inputs).at("o"),
              ElementsAre(15, 31, 34, 63));
}

TEST(Evaluate, LoadsRepeatColumnsAndGatherRows) {
  const TensorValues inputs = {{"t", {1, 2, 3, 4, 5, 6}}, {"pos", {2, 0, 2}}};
  EXPECT_THAT(run("store(o, tile(t[3, 2], rows=pos[M], repeat=2))", {{"M", 3}}, inputs).at("o"),
              ElementsAre(5, 6, 5, 6, 1, 2, 1, 2, 5, 6, 5, 6));
  EXPECT_THROW(run("store(o, tile(t[3, 2], rows=pos[M]))", {{"M", 3}},
                   {{"t", inputs.at("t")}, {"pos", {0, 3, 1}}}),
               Error);
}

TEST(Evaluate, AVectorOfColumnsRepeats) {
  const TensorValues inputs = {{"x", {1, 2, 3, 4, 5, 6}}, {"w", {1, 10}}};
  EXPECT_THAT(
      run("store(o, tile(x[M, 2*H]) * per_column(w[2], repeat=H))", {{"M", 1}, {"H", 3}}, inputs)
          .at("o"),
      ElementsAre(1, 20, 3, 40, 5, 60));
}

TEST(Evaluate, ComparisonsAndWhere) {
  const TensorValues inputs = {{"x", {1, 2, 3}}};
  const auto of = [&](const std::string& condition) {
    return run("x = tile(x[M, 3])\nstore(o, where(" + condition + ", 10, x))", {{"M", 1}}, inputs)
        .at("o");
  };
  EXPECT_THAT(of("x < 2"), ElementsAre(10, 2, 3));
  EXPECT_THAT(of("x <= 2"), ElementsAre(10, 10, 3));
  EXPECT_THAT(of("x > 2"), ElementsAre(1, 2, 10));
  EXPECT_THAT(of("x >= 2"), ElementsAre(1, 10, 10));
  EXPECT_THAT(of("x == 4 / 2"), ElementsAre(1, 10, 3));
  EXPECT_THAT(of("x + 1 != 3"), ElementsAre(10, 2, 10));
  EXPECT_THAT(of("(x > 1) * (x < 3)"), ElementsAre(1, 10, 3));
}

TEST(Evaluate, AWholeLogSumExpIsBothResultsAdded) {
  const TensorValues inputs = {{"p", {1000, 2, 3, 4}}};  // two rows: maxima, then sums of exp
  const TensorValues out =
      run("store(whole, combine_rows(log_sum_exp(p[M, V]), log_sum_exp))\n"
          "store(parts, combine_rows(log_sum_exp(p), max) + combine_rows(log_sum_exp(p), log_sum))",
          {{"M", 2}, {"V", 64}}, inputs);
  EXPECT_THAT(out.at("whole"), ElementsAre(1000 + std::log(3.0), 2 + std::log(4.0)));
  EXPECT_EQ(out.at("whole"), out.at("parts"));
}

TEST(Evaluate, VectorsBroadcastByTheProgramsShapesNotByThisRunsSizes) {
  const TensorValues inputs = {
      {"x", {1, 2, 3}}, {"row", {10}}, {"col", {100, 200, 300}}, {"s", {2}}};
  EXPECT_THAT(
      run("store(o, tile(x[M, N]) * per_row(row) + per_column(col) * scalar(s) - column_index())",
          {{"M", 1}, {"N", 3}}, inputs)
          .at("o"),
      ElementsAre(210, 419, 628));
}

TEST(Evaluate, PairsInTheirThreeLayouts) {
  const TensorValues inputs = {{"x", {0, 1, 2, 3, 4, 5, 6, 7}}};
  const auto members = [&](const std::string& group) {
    const std::string body = "x = tile(x[M, 8])\na, b = split_pairs(x, " + group +
                             ")\nstore(a, a)\nstore(b, b)\nstore(x2, merge_pairs(a, b, " + group +
                             "))";
    TensorValues result = run(body, {{"M", 1}}, inputs);
    EXPECT_EQ(result.at("x2"), inputs.at("x")) << group;
    std::vector<double> both = result.at("a");
    both.insert(both.end(), result.at("b").begin(), result.at("b").end());
    return both;
  };
  EXPECT_THAT(members("interleaved"), ElementsAre(0, 2, 4, 6, 1, 3, 5, 7));
  EXPECT_THAT(members("concatenated"), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_THAT(members("4"), ElementsAre(0, 1, 4, 5, 2, 3, 6, 7));
}

TEST(Evaluate, GroupsAndSelectedColumns) {
  const TensorValues inputs = {{"x", {1, 2, 3, 4, 5, 6, 7, 8}}, {"target", {3, -1}}};
  const std::string body = R"(x = tile(x[M, 4])
    s = reduce_group(x, 2)
    store(s, s)
    store(y, repeat_group(s, 2))
    store(picked, select_column(x, per_row(target:i32))))";
  const TensorValues result = run(body, {{"M", 2}}, inputs);
  EXPECT_THAT(result.at("s"), ElementsAre(3, 7, 11, 15));
  EXPECT_THAT(result.at("y"), ElementsAre(3, 3, 7, 7, 11, 11, 15, 15));
  EXPECT_THAT(result.at("picked"), ElementsAre(4, 0));
}

TEST(Evaluate, StoredValuesAreRoundedOnlyWhenAsked) {
  const TensorValues inputs = {{"x", {1 + 0x1p-9, 1 + 0x1p-12}}};
  const std::string body =
      "x = tile(x[M, N])\nstore(h:f16, x)\nstore(b, as_stored(x, bf16))\nstore(d:f64, x)";
  const DimValues sizes = {{"M", 2}, {"N", 1}};
  const TensorValues exact = run(body, sizes, inputs);
  EXPECT_EQ(exact.at("h"), inputs.at("x"));
  EXPECT_EQ(exact.at("b"), inputs.at("x"));
  const TensorValues rounded = run(body, sizes, inputs, {.round_stored = true});
  EXPECT_THAT(rounded.at("h"), ElementsAre(1 + 0x1p-9, 1));
  EXPECT_THAT(rounded.at("b"), ElementsAre(1, 1));
  EXPECT_EQ(rounded.at("d"), inputs.at("x"));
}

TEST(Evaluate, PartialsCover64BaseColumnsOrRows) {
  TensorValues inputs;
  for (int i = 0; i < 130; ++i) inputs["x"].push_back(i);
  const TensorValues row =
      run("row_partial(s, sum(tile(x[M, N])))", {{"M", 1}, {"N", 130}}, inputs);
  EXPECT_THAT(row.at("s"), ElementsAre(63 * 32, 64 * 64 + 63 * 32, 128 + 129));
  const TensorValues column =
      run("column_partial(s, max(tile(x[M, N])))", {{"M", 65}, {"N", 2}}, inputs);
  EXPECT_THAT(column.at("s"), ElementsAre(126, 127, 128, 129));
  // Twice the base width: the first partial covers columns 0-63 and 65-128, the second 64 and 129.
  const TensorValues pairs =
      run("x = tile(x[M, 2*I])\na, b = split_pairs(x, concatenated)\nstore(ab, a * "
          "b)\nrow_partial(s, sum(x))",
          {{"M", 1}, {"I", 65}}, inputs);
  EXPECT_THAT(pairs.at("s"), ElementsAre(63 * 32 + 65 * 64 + 63 * 32, 64 + 129));
  // Two lanes: all means, then all sums of squares.
  const TensorValues moments =
      run("row_partial(s, mean_m2(tile(x[M, N])))", {{"M", 2}, {"N", 65}}, inputs);
  const double squares = 64.0 * (64.0 * 64.0 - 1) / 12;
  EXPECT_THAT(moments.at("s"), ElementsAre(31.5, 64, 96.5, 129, squares, 0, squares, 0));
}

TEST(Evaluate, CombinedPartialsAreTheReductionOfTheWholeLine) {
  std::mt19937_64 random(3);
  for (int64_t size : {1, 2, 63, 64, 65, 128, 200}) {
    std::vector<double> x(size);
    for (double& value : x) value = static_cast<double>(random() % 2000) / 100 - 5;
    double sum = 0, largest = -1e300, exponentials = 0, squares = 0;
    for (double value : x) sum += value, largest = std::max(largest, value);
    for (double value : x) exponentials += std::exp(value - largest);
    for (double value : x) squares += (value - sum / size) * (value - sum / size);
    double entropy = 0;
    for (double value : x) {
      const double p = std::exp(value - largest) / exponentials;
      entropy -= p * std::log(p);
    }
    for (const bool rows : {true, false}) {
      const DimValues sizes =
          rows ? DimValues{{"M", 1}, {"N", size}} : DimValues{{"M", size}, {"N", 1}};
      const std::string kind = rows ? "row_partial(" : "column_partial(";
      TensorValues partials =
          run("x = tile(x[M, N])\n" + kind + "a, sum(x))\n" + kind + "b, max(x))\n" + kind +
                  "c, log_sum_exp(x))\n" + kind + "d, mean_m2(x))\n" + kind + "e, entropy(x))",
              sizes, {{"x", x}});
      const std::string call = rows ? "combine_rows(" : "combine_columns(";
      const TensorValues result = run(
          "store(sum, " + call + "sum(a[M, N])))\nstore(max, " + call + "max(b[M, N])))\n" +
              "store(m, " + call + "log_sum_exp(c[M, N]), max))\n" + "store(l, " + call +
              "log_sum_exp(c), log_sum))\n" + "store(mean, " + call + "mean_m2(d[M, N]), mean))\n" +
              "store(squares, " + call + "mean_m2(d), m2))\n" + "store(entropy, " + call +
              "entropy(e[M, N]), entropy))\n" + "store(lse, " + call + "entropy(e), log_sum_exp))",
          sizes, partials);
      EXPECT_NEAR(result.at("sum")[0], sum, 1e-11);
      EXPECT_EQ(result.at("max")[0], largest);
      EXPECT_EQ(result.at("m")[0], largest);
      EXPECT_NEAR(result.at("l")[0], std::log(exponentials), 1e-12);
      EXPECT_NEAR(result.at("mean")[0], sum / size, 1e-12);
      EXPECT_NEAR(result.at("squares")[0], squares, 1e-9);
      EXPECT_NEAR(result.at("entropy")[0], entropy, 1e-11);
      EXPECT_NEAR(result.at("lse")[0], largest + std::log(exponentials), 1e-11);
    }
  }
}

TEST(Evaluate, FinalizersReduceAndTransposeVectors) {
  const TensorValues inputs = {{"r", {1, 2, 3}}, {"dw", {1, 1, 1}}};
  const TensorValues result = run(R"(r = per_row(r[M])
    total = reduce_vector(r)
    store(total, total)
    store(share, r / total)
    store(dw, per_column(dw[M]) + transpose_vector(r)))",
                                  {{"M", 3}}, inputs);
  EXPECT_THAT(result.at("total"), ElementsAre(6));
  EXPECT_THAT(result.at("share"),
              Pointwise(DoubleNear(1e-15), std::vector<double>{1 / 6., 2 / 6., 3 / 6.}));
  EXPECT_THAT(result.at("dw"), ElementsAre(2, 3, 4));
}

TEST(Evaluate, RandomProgramsAreFinite) {
  for (uint64_t seed = 0; seed < 150; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const coda::tests::RandomProgram random = coda::tests::random_program(seed);
    TensorValues inputs = coda::tests::random_inputs(random.program, random.sizes, seed);
    TensorValues outputs = evaluate(random.program, random.sizes, inputs);
    if (random.finalizer) {
      TensorValues more = coda::tests::random_inputs(*random.finalizer, random.sizes, seed);
      for (const auto& [name, values] : more) outputs.try_emplace(name, values);
      for (const auto& [name, values] : evaluate(*random.finalizer, random.sizes, outputs))
        outputs[name] = values;
    }
    for (const auto& [name, values] : outputs) {
      for (double value : values)
        ASSERT_TRUE(std::isfinite(value)) << name << "\n" << text(random.program);
    }
  }
}

TEST(Evaluate, MissingAndWronglySizedInputsAreNamed) {
  try {
    run("store(o, tile(x[M, N]))", {{"M", 2}, {"N", 2}}, {{"x", {1, 2, 3}}});
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("tensor 'x' has 3 elements; program 'p' needs 2 x 2"));
  }
  EXPECT_THROW(run("store(o, tile(x[M, N]))", {{"M", 2}, {"N", 2}}, {}), Error);
}

}  // namespace
}  // namespace coda::program
