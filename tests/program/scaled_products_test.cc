// SPDX-License-Identifier: Apache-2.0
// Operands of 8 bits whose blocks have scales, and the largest magnitudes of groups of columns, of
// which scales are made: what they mean, what is refused, and that text keeps them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "coda/error.h"
#include "coda/lift.h"
#include "coda/mathematics.h"
#include "coda/program_builder.h"
#include "program/evaluate.h"

namespace coda::program {
namespace scaled_products {
namespace {

using testing::HasSubstr;

std::string message_of(const std::string& body) {
  try {
    parse_program("program p {\n" + body + "\n}");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// 1 row by 2 of B, 256 long: a scale for each 128 of A's row, one for each row and 128 of B.
TEST(ScaledProducts, AnElementIsItsCodeTimesItsBlocksScale) {
  TensorValues inputs{{"a", std::vector<double>(256, 2)},
                      {"b", std::vector<double>(512, 1)},
                      {"as", {0.5, 3}},
                      {"bs", {1, 10, 100, 1000}}};
  const Program rows = parse_program(
      "program p { store(y, gemm(scaled(a[M, 256]:e4m3, as[M, 2]), scaled(b[N, 256]:e4m3, bs[N, "
      "2]))) }");
  EXPECT_EQ(evaluate(rows, {{"M", 1}, {"N", 2}}, inputs).at("y"),
            (std::vector<double>{128 * (2 * 0.5 * 1 + 2 * 3 * 10.0),
                                 128 * (2 * 0.5 * 100 + 2 * 3 * 1000.0)}));
  // Blocks of 128 x 128 of B: its first 128 rows have one scale, the others another.
  inputs["b"] = std::vector<double>(size_t{256} * 256, 1);
  inputs.erase("as");
  const Program squares = parse_program(
      "program p { store(y, gemm(a[M, 256]:e4m3, scaled(b[256, 256]:e4m3, bs[2, 2]), nt)) }");
  const std::vector<double> y = evaluate(squares, {{"M", 1}}, inputs).at("y");
  EXPECT_EQ(y[127], 128 * 2 * (1 + 10));
  EXPECT_EQ(y[128], 128 * 2 * (100 + 1000));
}

TEST(ScaledProducts, TextAndFormulasSayThem) {
  const Program program = parse_program(
      "program p {\n  store(y, gemm(scaled(x[M, 128*B]:e4m3, xs[M, B]), w[N, 128*B]:e4m3))\n}");
  EXPECT_EQ(parse_program(text(program)), program);
  EXPECT_THAT(mathematics(program).back(), HasSubstr("(x scaled by xs) · wᵀ"));
  // `scaled` is no word of the language: a tensor may have that name.
  const Program named =
      parse_program("program p { store(y, gemm(scaled[M, 128]:e4m3, w[N, 128]:e4m3)) }");
  EXPECT_EQ(named.tensors[0].name, "scaled");
  EXPECT_EQ(parse_program(text(named)), named);
}

TEST(ScaledProducts, WhatCannotBeScaledIsRefusedWithARemedy) {
  const auto product = [](const std::string& a, const std::string& scales) {
    return message_of("store(y, gemm(scaled(" + a + ", " + scales + "), w[N, K]:e4m3, nt))");
  };
  EXPECT_THAT(product("x[M, K]:e4m3", "xs[M, B]"),
              HasSubstr("the product of 'x' [M, K] has K columns, no multiple of 128 for all "
                        "sizes; write the width as a multiple, such as 128*B"));
  const auto of_blocks = [](const std::string& a, const std::string& scales,
                            const std::string& layout) {
    return message_of("store(y, gemm(scaled(" + a + ", " + scales + "), w[N, 256]:e4m3, " + layout +
                      "))");
  };
  EXPECT_THAT(of_blocks("x[M, 256]:bf16", "xs[M, 2]", "nt"),
              HasSubstr("'x' is bf16; only operands of e4m3 and e5m2 are scaled"));
  EXPECT_THAT(of_blocks("x[256, M]:e4m3", "xs[256, 2]", "tt"),
              HasSubstr("store it transposed, and scale that"));
  EXPECT_THAT(of_blocks("x[M, 256]:e4m3", "xs[M, 2]:bf16", "nt"),
              HasSubstr("scales 'xs' are bf16; they are f32"));
  EXPECT_THAT(of_blocks("x[M, 256]:e4m3", "xs[M, 4]", "nt"),
              HasSubstr("has scales of shape [M, 2], 'xs' is [M, 4]"));
  EXPECT_THAT(of_blocks("x[128*C, 256]:e4m3", "xs[2*C, 2]", "nt"),
              HasSubstr("has scales of shape [128*C, 2] or [C, 2], 'xs' is [2*C, 2]"));
  EXPECT_THAT(of_blocks("x[M, 256]:e4m3", "xs", "nt"), HasSubstr("the shape of 'xs' is not known"));
  EXPECT_THAT(message_of("store(xs, gemm(scaled(x[M, 256]:e4m3, xs[M, 2]), w[2, 256]:e4m3, nt))"),
              HasSubstr("'xs' is stored"));
}

TEST(ScaledProducts, HaveNoOperationOfAGraph) {
  Graph graph;
  LiftedTensors tensors;
  EXPECT_THROW(lift(parse_program("program p { store(y, gemm(scaled(x[M, 128]:e4m3, xs[M, 1]), "
                                  "w[N, 128]:e4m3)) }"),
                    graph, tensors),
               Error);
}

TEST(AbsMaxGroup, IsTheLargestMagnitudeOfEachGroup) {
  const Program program =
      parse_program("program p { store(y, abs_max_group(tile(x[M, 2*G]), 2)) }");
  const double nan = std::nan("");
  const std::vector<double> y =
      evaluate(program, {{"M", 1}, {"G", 4}}, {{"x", {1, -3, 0, -0.0, nan, 5, -7, nan}}}).at("y");
  EXPECT_EQ(y[0], 3);
  EXPECT_EQ(y[1], 0);
  EXPECT_TRUE(std::isnan(y[2]));
  EXPECT_TRUE(std::isnan(y[3]));
}

}  // namespace
}  // namespace scaled_products
}  // namespace coda::program
