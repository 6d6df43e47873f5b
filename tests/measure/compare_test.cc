// SPDX-License-Identifier: Apache-2.0
// Programs beside a formula: what arrays a formula sees of each kind of tensor, what counts as the
// same, and which sizes given inputs have.
#include "coda/compare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "coda/error.h"

namespace coda {
namespace comparisons {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const DimValues kSizes{{"M", 5}, {"N", 150}, {"K", 3}};  // more columns than two partials have

std::vector<Program> programs_of(const std::vector<std::string>& statements) {
  std::vector<Program> programs;
  for (const std::string& one : statements)
    programs.push_back(
        parse_program("program p" + std::to_string(programs.size()) + " {\n" + one + "\n}\n"));
  return programs;
}

Comparison compared(const std::vector<std::string>& statements, const std::string& formula) {
  return compare_with_formula(programs_of(statements), kSizes, formula, 1);
}

std::vector<std::string> names_of(const Comparison& comparison) {
  std::vector<std::string> names;
  for (const ComparedTensor& tensor : comparison.tensors) names.push_back(tensor.name);
  return names;
}

TEST(Compare, APartialIsItsWholeReductionAndHasItsResults) {
  const Comparison all = compared({"x = tile(x[M, N])\nstore(x2, x * 1)\n"
                                   "row_partial(s, sum(x))\n"
                                   "row_partial(l, log_sum_exp(x))\n"
                                   "row_partial(m, mean_m2(x))\n"
                                   "column_partial(c, max(x))\n"
                                   "column_partial(a, abs_max(x))"},
                                  "s = x.sum(axis=1); l = logsumexp(x, axis=1)\n"
                                  "l_max = x.max(axis=1); l_log_sum = l - l_max\n"
                                  "m_mean = x.mean(axis=1); m_m2 = N * var(x, axis=1); m = m_m2\n"
                                  "c = x.max(axis=0); a = abs(x).max(axis=0)");
  EXPECT_TRUE(all.is_right()) << text(all);
  EXPECT_THAT(names_of(all),
              ElementsAre("a", "c", "l", "l_log_sum", "l_max", "m", "m_m2", "m_mean", "s"));
  EXPECT_THAT(all.left_out, ElementsAre("x2"));
}

TEST(Compare, AFinalizerAloneReadsPartialsAsReductions) {
  EXPECT_TRUE(compared({"store(r, combine_rows(sum(p[M, N])) * 2)"}, "r = 2 * p").is_right());
  EXPECT_TRUE(compared({"store(r, combine_rows(log_sum_exp(p[M, N]), log_sum))"},
                       "r = p_log_sum; also = p - p_max - r")
                  .is_right());
  EXPECT_FALSE(
      compared({"store(r, combine_rows(log_sum_exp(p[M, N]), log_sum))"}, "r = p").is_right());
}

TEST(Compare, WhatOneProgramStoresTheNextReads) {
  const std::vector<std::string> chain{"y = gemm(x[M, K], w[N, K])\nrow_partial(s, sum(y * y))",
                                       "store(r, rsqrt(combine_rows(sum(s[M, N]))))",
                                       "store(z, tile(x[M, K]) * per_row(r[M]))"};
  EXPECT_TRUE(
      compared(chain, "z = x / sqrt(sum((x @ w.T) ** 2, axis=1, keepdims=True))").is_right());
}

TEST(Compare, ProgramsThatDoNotBelongTogetherAreRefused) {
  const auto refusal = [](const std::vector<std::string>& statements) {
    try {
      compared(statements, "y = x");
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_THAT(refusal({"store(y, tile(x[M, N]) * 1)", "store(z, tile(x[N, M]) * 1)"}),
              HasSubstr("tensor 'x' is [M, N]:f32 in program 'p0' and [N, M]:f32 in 'p1'"));
  EXPECT_THAT(refusal({"store(z, tile(y[M, N]) * 1)", "store(y, tile(x[M, N]) * 1)"}),
              HasSubstr("name the files in the order in which they run"));
}

// What only large inputs meet, and what only small ones do.
TEST(Compare, ClampsAndSmallNumbersThatAreAddedAreCompared) {
  const Comparison clamped = compared({"store(y, min(tile(x[M, N]), 20))"}, "y = x");
  EXPECT_FALSE(clamped.is_right());
  EXPECT_EQ(clamped.tensors.front().remark, "of inputs 32 times as large");
  const Comparison added =
      compared({"store(y, sqrt(tile(x[M, N]) * tile(x) + 1e-9))"}, "y = abs(x)");
  EXPECT_FALSE(added.is_right());
  EXPECT_TRUE(compared({"store(y, min(tile(x[M, N]), 20))"}, "y = minimum(x, 20)").is_right());
  // Only the program or only the formula has the number.
  for (const auto& [program, formula] :
       {std::pair{"store(y, max(tile(x[M, N]), -70000))", "y = x"},
        std::pair{"store(y, tile(x[M, N]))", "y = clip(x, -3e5, 3e5)"}}) {
    const Comparison clipped = compared({program}, formula);
    EXPECT_FALSE(clipped.is_right()) << formula;
    EXPECT_THAT(clipped.tensors.front().remark, HasSubstr("of which half are"));
  }
  // exp(x) of 32 is no infinity, but that of the sum is where the program's is not.
  EXPECT_TRUE(compared({"row_partial(l, log_sum_exp(tile(x[M, N]) * 100))"},
                       "l = log(sum(exp(100 * x), axis=1))")
                  .is_right());
}

TEST(Compare, ResultsThatOverflowWhereTheFormulaDoesNotAreNoted) {
  const std::string softplus = "maximum(100 * x, 0) + log1p(exp(-abs(100 * x)))";
  const Comparison overflows =
      compared({"store(y, log(1 + exp(100 * tile(x[M, N]))))"}, "y = " + softplus);
  EXPECT_TRUE(overflows.is_right()) << text(overflows);
  EXPECT_THAT(overflows.notes, Contains(HasSubstr("elements of y are not finite, where the "
                                                  "formula's are")));
  EXPECT_THAT(compared({"z = 100 * tile(x[M, N])\nstore(y, max(z, 0) + log(1 + exp(-abs(z))))"},
                       "y = " + softplus)
                  .notes,
              IsEmpty());
}

TEST(Compare, ADifferenceOfOneElementIsFound) {
  const Arrays inputs{{"x", {{2, 100}, std::vector<double>(200, 1.0)}}};
  Arrays wanted{{"y", {{2, 100}, std::vector<double>(200, 2.0)}}};
  const std::vector<Program> programs = programs_of({"store(y, tile(x[M, N]) * 2)"});
  const DimValues sizes = sizes_of_inputs(programs, inputs);
  EXPECT_EQ(sizes, (DimValues{{"M", 2}, {"N", 100}}));
  const auto compare = [&] { return compare_with_results(programs, sizes, inputs, wanted, 1e-2); };
  EXPECT_TRUE(compare().is_right());
  wanted.at("y").values[103] = 2.2;
  const Comparison one = compare();
  EXPECT_FALSE(one.is_right());
  EXPECT_EQ(one.tensors.front().differing, 1);
  EXPECT_THAT(one.tensors.front().examples, ElementsAre("[1, 3]: 2, wanted 2.2"));
  wanted.at("y").values[103] = std::numeric_limits<double>::quiet_NaN();
  EXPECT_FALSE(compare().is_right());
}

TEST(Compare, AResultThatNoProgramStoresIsNamed) {
  const Arrays inputs{{"x", {{1, 3}, {1, 2, 3}}}};
  const std::vector<Program> programs = programs_of({"store(y, tile(x[M, N]) * 2)"});
  const auto message_of = [&](const Arrays& results) -> std::string {
    try {
      compare_with_results(programs, sizes_of_inputs(programs, inputs), inputs, results, 1e-5);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  const Array right{{1, 3}, {2, 4, 6}};
  EXPECT_EQ(message_of({{"y", right}}), "");
  EXPECT_THAT(message_of({{"y", right}, {"z", right}}),
              testing::HasSubstr("'z', which no program stores"));
  EXPECT_THAT(message_of({}), testing::HasSubstr("nothing, none of which the programs store"));
}

TEST(Compare, NotNumbersAgreeWithNotNumbers) {
  const double infinity = std::numeric_limits<double>::infinity();
  const Arrays inputs{{"x", {{1, 3}, {-1, 0, 4}}}};
  const std::vector<Program> programs = programs_of({"store(y, 1 / sqrt(tile(x[M, N])))"});
  const auto is_right = [&](const std::vector<double>& values) {
    return compare_with_results(programs, sizes_of_inputs(programs, inputs), inputs,
                                {{"y", {{1, 3}, values}}}, 1e-5)
        .is_right();
  };
  const double none = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(is_right({none, infinity, 0.5}));
  EXPECT_FALSE(is_right({none, 1e300, 0.5}));
  EXPECT_FALSE(is_right({0, infinity, 0.5}));
}

TEST(SizesOfInputs, AreSolvedFromShapesAndVectorsLieEitherWay) {
  const std::vector<Program> programs =
      programs_of({"z = gemm(x[M, K], w[2*N + 4, K]) * per_row(r[M]) + per_column(b[2*N + 4])\n"
                   "store(z, z)"});
  for (const std::vector<int64_t>& r : std::vector<std::vector<int64_t>>{{2}, {2, 1}, {1, 2}}) {
    const Arrays inputs{{"x", {{2, 3}, std::vector<double>(6)}},
                        {"w", {{10, 3}, std::vector<double>(30)}},
                        {"r", {r, {1, 2}}},
                        {"b", {{10}, std::vector<double>(10)}}};
    EXPECT_EQ(sizes_of_inputs(programs, inputs), (DimValues{{"K", 3}, {"M", 2}, {"N", 3}}));
  }
}

TEST(SizesOfInputs, ThatNoInputHasAreAskedFor) {
  const std::vector<Program> programs = programs_of({"store(r, combine_rows(sum(p[M, N])) * 2)"});
  const Arrays inputs{{"p", {{4, 2}, std::vector<double>(8)}}};
  try {
    sizes_of_inputs(programs, inputs);
    ADD_FAILURE() << "N is known";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("do not give the size N"));
    EXPECT_THAT(error.what(), HasSubstr("--sizes N=1024"));
  }
  EXPECT_EQ(sizes_of_inputs(programs, inputs, {{"N", 100}}), (DimValues{{"M", 4}, {"N", 100}}));
}

}  // namespace
}  // namespace comparisons
}  // namespace coda
