// SPDX-License-Identifier: Apache-2.0
// Formulas mean what NumPy means by them. Expected values are written out, or made another way.
#include "coda/formula.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "coda/elementwise.h"
#include "coda/error.h"

namespace coda {
namespace formula_text {
namespace {

using testing::DoubleNear;
using testing::HasSubstr;
using testing::Pointwise;

const Arrays kKnown{{"x", {{2, 3}, {1, 2, 3, 4, 5, 6}}},
                    {"w", {{2, 3}, {1, 0, -1, 2, 1, 0}}},
                    {"r", {{2}, {10, 100}}},
                    {"c", {{3}, {1, 2, 3}}},
                    {"ids", {{3}, {1, 0, 1}}},
                    {"N", {{}, {3}}}};

Array value_of(const std::string& expression) {
  return evaluate_formula("out = " + expression, kKnown).at("out");
}
void expect_value(const std::string& expression, std::vector<int64_t> shape,
                  const std::vector<double>& values) {
  const Array value = value_of(expression);
  EXPECT_EQ(value.shape, shape) << expression;
  EXPECT_THAT(value.values, Pointwise(DoubleNear(1e-12), values)) << expression;
}
std::string message_of(const std::string& text) {
  try {
    evaluate_formula(text, kKnown);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Formula, OperatorsBindAsInPython) {
  expect_value("1 + 2 * 3", {}, {7});
  expect_value("-2 ** 2", {}, {-4});
  expect_value("2 ** -1", {}, {0.5});
  expect_value("2 ** 3 ** 2", {}, {512});
  expect_value("8 / 2 / 2 - 1 - 1", {}, {0});
  expect_value("7 // 2 + -7 % 3", {}, {5});
  expect_value("(1 + 2) * 3 < 10", {}, {1});
  expect_value("1e-3 + .5", {}, {0.501});
  expect_value("(c > 1) & (c < 3)", {3}, {0, 1, 0});
  expect_value("(c > 2) | (c < 2)", {3}, {1, 0, 1});
}

TEST(Formula, VectorsGoWithTheLastDimension) {
  expect_value("x * c", {2, 3}, {1, 4, 9, 4, 10, 18});
  expect_value("x * r[:, None]", {2, 3}, {10, 20, 30, 400, 500, 600});
  expect_value("x + 1", {2, 3}, {2, 3, 4, 5, 6, 7});
  expect_value("r[:, None] + c", {2, 3}, {11, 12, 13, 101, 102, 103});
}

TEST(Formula, MultipliesMatrices) {
  expect_value("x @ w.T", {2, 2}, {-2, 4, -2, 13});
  expect_value("x.T @ r", {3}, {410, 520, 630});
  expect_value("c @ c", {}, {14});
  expect_value("matmul(x, transpose(w))", {2, 2}, {-2, 4, -2, 13});
}

TEST(Formula, ReducesAlongAxes) {
  expect_value("sum(x)", {}, {21});
  expect_value("x.sum(axis=1)", {2}, {6, 15});
  expect_value("mean(x, axis=0, keepdims=True)", {1, 3}, {2.5, 3.5, 4.5});
  expect_value("x.max(-1)", {2}, {3, 6});
  expect_value("min(x, (0, 1))", {}, {1});
  expect_value("var(c)", {}, {2.0 / 3});
  expect_value("x.sum(dim=1, keepdim=True)", {2, 1}, {6, 15});
  expect_value("logsumexp(x, axis=1)", {2},
               {std::log(std::exp(1) + std::exp(2) + std::exp(3)),
                std::log(std::exp(4) + std::exp(5) + std::exp(6))});
  expect_value("softmax(x).sum(axis=-1)", {2}, {1, 1});
}

TEST(Formula, SlicesTakesAndJoins) {
  expect_value("x[:, :2]", {2, 2}, {1, 2, 4, 5});
  expect_value("x[:, 1::2]", {2, 1}, {2, 5});
  expect_value("x[..., -1]", {2}, {3, 6});
  expect_value("x[1]", {3}, {4, 5, 6});
  expect_value("x[ids]", {3, 3}, {4, 5, 6, 1, 2, 3, 4, 5, 6});
  expect_value("x[:, N // 2:]", {2, 2}, {2, 3, 5, 6});
  expect_value("x[arange(2), ids[:2]]", {2}, {2, 4});
  expect_value("concatenate([x[:, 2:], x[:, :1]], axis=1)", {2, 2}, {3, 1, 6, 4});
  expect_value("stack([r, r * 2], axis=1).reshape(-1)", {4}, {10, 20, 100, 200});
  expect_value("x.reshape(3, 2).T", {2, 3}, {1, 3, 5, 2, 4, 6});
  expect_value("tile(c, (2, 1))", {2, 3}, {1, 2, 3, 1, 2, 3});
  expect_value("repeat(r, 2, axis=0)", {4}, {10, 10, 100, 100});
  expect_value("x.shape[1]", {}, {3});
  expect_value("x.transpose(0, 1)[0]", {2}, {1, 4});
  expect_value("x.transpose(1, 0)[0]", {2}, {1, 4});
  expect_value("x.reshape(1, 2, 3).transpose(2, 0, 1)[1, 0]", {2}, {2, 5});
}

TEST(Formula, KnowsTheFunctionsOfNetworks) {
  expect_value("relu(c - 2)", {3}, {0, 0, 1});
  expect_value("where(c > 2, c, -c)", {3}, {-1, -2, 3});
  expect_value("maximum(c, 2)", {3}, {2, 2, 3});
  expect_value("np.abs(-c)", {3}, {1, 2, 3});
  expect_value("torch.nn.F.silu(2)", {}, {2 / (1 + std::exp(-2))});
  expect_value("gelu(1)", {}, {0.5 * (1 + std::erf(std::sqrt(0.5)))});
  expect_value("sigmoid(0)", {}, {0.5});
  expect_value("softplus(-800) + c.pow(2)[1]", {}, {4});
  expect_value("bf16(1.001)", {}, {1});
  expect_value("select_column(x, ids[:2] * 5 - 3)", {2}, {3, 0});
}

// Of rows and columns, as programs have them; the known answer of the authors' Random123.
TEST(Formula, RandomNumbersAreTheLanguages) {
  expect_value("random(0, 0, 0)", {}, {(0xff1dae59 >> 8) * 0x1p-24});
  const auto number = [](double seed, double i, double j) {
    return info(Elementwise::random).evaluate(seed, i, j);
  };
  expect_value("random(7, arange(2)[:, None], arange(3))", {2, 3},
               {number(7, 0, 0), number(7, 0, 1), number(7, 0, 2), number(7, 1, 0), number(7, 1, 1),
                number(7, 1, 2)});
}

TEST(Formula, LinesFollowOneAnotherAndHideWhatWasKnown) {
  const Arrays values = evaluate_formula(
      "gate, up = split(concatenate([x, 2 * x], axis=1), 2, axis=1)  # a gate\n"
      "x = (gate +\n 1); out = x * up; p.mean = 3",
      {{"x", {{1, 1}, {3}}}});
  EXPECT_EQ(values.at("out").values, std::vector<double>{24});
  EXPECT_EQ(values.at("x").values, std::vector<double>{4});
  EXPECT_EQ(values.at("p.mean").values, std::vector<double>{3});
}

TEST(Formula, SaysWhereItIsWrong) {
  EXPECT_THAT(message_of("out = x @ w"),
              HasSubstr("line 1, column 9, at '@ w': @ cannot multiply [2, 3] by [2, 3]"));
  EXPECT_THAT(message_of("\nout = x * r"),
              HasSubstr("line 2, column 9, at '* r': shapes [2, 3] and [2]"));
  EXPECT_THAT(message_of("out = id[0]"), HasSubstr("the nearest known name is \"ids\""));
  EXPECT_THAT(message_of("out = sofmax(x)"), HasSubstr("the nearest known name is \"softmax\""));
  EXPECT_THAT(message_of("out = sum(x, axi=1)"), HasSubstr("has no argument 'axi'"));
  EXPECT_THAT(message_of("out = x +"), HasSubstr("expected a value here, not the end of the line"));
  EXPECT_THAT(message_of("x @ w.T"), HasSubstr("expected '='"));
  EXPECT_THAT(message_of("out = x[5]"), HasSubstr("index 5 is outside of a size of 2"));
  EXPECT_THAT(message_of("out = x ? 2"), HasSubstr("is not part of a formula"));
  EXPECT_THAT(message_of("out = exp"), HasSubstr("is a function"));
  EXPECT_THAT(message_of("out = " + std::string(3000, '(')), HasSubstr("too many brackets"));
  EXPECT_THAT(message_of("out = " + std::string(3000, '-') + "1"), HasSubstr("too many signs"));
  EXPECT_THAT(message_of("out = zeros((100000, 100000))"), HasSubstr("too large"));
}

// Whatever the text is, it is evaluated or refused by an Error.
TEST(Formula, AnyTextIsEvaluatedOrRefused) {
  const std::vector<std::string> words{
      "x", "w",  "r",    "(",   ")",       "[",       "]",           ":",   ",", "+",
      "-", "*",  "**",   "@",   "sum",     "=",       "1",           "3",   ".", "T",
      "=", "\n", "axis", "...", "softmax", "None",    "//",          "%",   "<", "==",
      "#", ";",  "1e9",  "ids", "stack",   "reshape", "concatenate", "tile"};
  std::mt19937 random(3);
  int evaluated = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string text = "out = ";
    for (size_t length = random() % 12; length > 0; --length)
      text += words[random() % words.size()] + (random() % 4 == 0 ? "" : " ");
    try {
      evaluate_formula(text, kKnown);
      ++evaluated;
    } catch (const Error&) {
    }
  }
  EXPECT_GT(evaluated, 100);
}

}  // namespace
}  // namespace formula_text
}  // namespace coda
