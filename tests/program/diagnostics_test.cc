// SPDX-License-Identifier: Apache-2.0
// What the parser says of mistakes: each with its place, its line and a mark; all of a text at
// once; nothing about what only follows from another; a bounded number.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "coda/error.h"
#include "coda/program.h"
#include "coda/program_error.h"

namespace coda {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Mistake {
  const char* line;     // inside a program, after acc = gemm(x[M, K], w[N, K]) on line 2
  const char* message;  // that the error contains
};

TEST(Diagnostics, MistakesNameLineAndColumnAndShowTheLine) {
  const Mistake mistakes[] = {
      {"z = acc * nothing",
       "text:3:13: error: 'nothing' has no value yet; a tensor is read by tile(nothing)"},
      {"z = acc * per_row(r[K])\n  store(o, z)",
       "text:3:11: error: shapes [M, N] and [K, 1] do not broadcast in mul"},
      {"z = frobnicate(acc)", "text:3:7: error: there is no function 'frobnicate'"},
      {"acc = acc * 2", "text:3:3: error: 'acc' has a value already"},
      {"exp = acc * 2", "'exp' cannot name a value"},
      {"a, b = split_pairs(acc, concatenated)",
       "N columns cannot be halved for all sizes; write the width as a multiple"},
      {"a, b = exp(acc)", "only split_pairs gives values to several names"},
      {"store(o, acc", "text:3:15: error: expected ')', the line ends"},
      {"store(o, acc) store(p, acc)",
       "text:3:17: error: expected the end of the line, there is 'store'"},
      {"store(o, acc)\n  store(o, acc)",
       "text:4:3: error: tensor 'o' is stored twice, also at line 3"},
      {"store(o, acc)\n  z = acc * 2", "text:4:11: error: its value is never used"},
      {"store(o[M, K], acc)", "a value of shape [M, N] does not fit 'o'"},
      {"store(o:f12, acc)", "types are f32, bf16, f16, f64, i32, e4m3, e5m2 and u8"},
      {"store(o, max(acc))", "max takes 2 operands, not 1"},
      {"store(o, acc + gemm(y[M, D], v[D, D]))",
       "'y' and 'v' share more than one dimension; add the layout"},
      {"store(o, acc + gemm(y[M, A], v[B, C]))", "share no dimension to contract"},
      {"store(o, acc + gemm(y[M, N], v))", "the shape of 'v' is not known here"},
      {"store(o, acc + gemm(silu(y[M, N]), v[N, N]))",
       "an operand of gemm is a stored matrix, no computed value; store it in a program before"},
      {"store(o, acc + gemm(y[M, N] * 2, v[N, N]))", "an operand of gemm is a stored matrix"},
      {"store(x, acc)", "tensor 'x' has shape [M, K], here it would be [M, N]"},
      {"store(o, acc + tile(w))", "do not broadcast"},
      {"row_partial(o, mean(acc))",
       "reductions are sum, max, log_sum_exp, mean_m2, abs_max and entropy"},
      {"store(o, combine_rows(sum(p[M, N])) * acc)", "a combine belongs to a finalizer"},
      {"store(q, acc)\n  store(o, per_row(r[M]))",
       "a vector that comes from no tile is stored by a program of its own"},
      {"store(o, reduce_group(acc, 64))", "groups of 64 columns do not divide N columns"},
      {"store(o, mean(acc))", "no function 'mean'; rows are reduced by row_partial(p, sum(z))"},
      {"store(o, matmul(x, w))", "no function 'matmul'; a product of matrices is gemm(x[M, K]"},
      {"store(o, x[M, K] @ w[N, K])", "'x' has no value yet; a tensor is read by tile(x)"},
      {"store(o, x[M, K] @ w[N, K])", "or scalar(x); a product is gemm(x[M, K], w[N, K])"},
      {"store(o, acc ** 2)", "text:3:16: error: a power is written  z * z"},
      {"store(o, gemm(x[M, K], v.T[K, N]))", "text:3:26: error: nothing is transposed by .T"},
      {"store(o, gemm(x[M, K], v[N, K].T))", "text:3:33: error: nothing is transposed by .T"},
      {"store(o, acc.T)", "store_transposed(y, z) stores a transpose"},
      {"store(o, acc ! 2)", "text:3:16: error: this character has no meaning here"},
      {"store(\"o, acc)", "this quote is not closed"},
      {"store(o, acc * 1e999)", "this number is out of range"},
      {"store(o, tile(t[S, N], rows=acc2[M], repeat=))", "expected a size"},
      {"store(o, tile(t[M/2, N]))", "'M/2' is not a size"},
  };
  for (const Mistake& mistake : mistakes) {
    const std::string program =
        std::string("program p {\n  acc = gemm(x[M, K], w[N, K])\n  ") + mistake.line + "\n}\n";
    try {
      parse_program(program);
      ADD_FAILURE() << "no error for " << mistake.line;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(mistake.message)) << mistake.line;
    }
  }
}

TEST(Diagnostics, AMistakeIsMarkedInItsLine) {
  try {
    parse_program("program p {\n  acc = gemm(x[M, K], w[N, K])\n  store(out, acc * r)\n}");
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "text:3:20: error: 'r' has no value yet; a tensor is read by tile(r), "
                 "per_row(r), per_column(r) or "
                 "scalar(r)\n"
                 "    store(out, acc * r)\n"
                 "                     ^");
  }
}

TEST(Diagnostics, OfALongLineOnlyTheBeginningIsShown) {
  try {
    parse_program("program p {\n" + std::string(5000, '?'));
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("text:2:1: "));
    EXPECT_LT(std::string(error.what()).size(), 400U);
  }
}

// "line:column message" of each mistake, up to the first sign that ends a clause.
std::vector<std::string> mistakes_of(const std::string& text) {
  std::vector<std::string> all;
  try {
    parse_program(text);
  } catch (const ProgramError& error) {
    for (const Diagnostic& mistake : error.mistakes()) {
      all.push_back(std::to_string(mistake.line) + ":" + std::to_string(mistake.column) + " " +
                    mistake.message.substr(0, mistake.message.find_first_of(";,")));
    }
  }
  return all;
}

TEST(Diagnostics, AllMistakesOfATextAreToldOfInOrder) {
  EXPECT_THAT(mistakes_of(R"(program p {
  acc = gemm(x[M, K], w[N, K])
  a = acc * r
  b = frob(acc)
  store(o, acc
  c = acc ? 2
  d = tile(y[M, N]:fp32)
  row_partial(s, mean(acc))
}
)"),
              ElementsAre("3:13 'r' has no value yet", "4:7 there is no function 'frob'",
                          "5:15 expected ')'", "6:11 this character has no meaning here",
                          "7:20 types are f32", "8:18 reductions are sum"));
}

TEST(Diagnostics, SoAreAllThatAreFoundWhenTheStepsAreThere) {
  EXPECT_THAT(
      mistakes_of(R"(program p {
  acc = gemm(x[M, K], w[N, K])
  a = acc * 2
  b = acc * 3
  store(o, acc)
  store(o, acc)
  store(q, combine_rows(sum(p[M, N])) * acc)
}
)"),
      ElementsAre("3:11 its value is never used", "4:11 its value is never used",
                  "6:3 tensor 'o' is stored twice", "7:12 a combine belongs to a finalizer"));
}

TEST(Diagnostics, WhatFollowsFromAMistakeIsNoSecondOne) {
  // 'a' and 'b' have no value because of line 3, and y no shape; r is told of once.
  EXPECT_THAT(mistakes_of(R"(program p {
  acc = gemm(x[M, K], w[N, K])
  a = acc * r + nonsense(tile(y[M, N]))
  b = a + acc
  store(o, b * tile(y))
  store(q, gemm(y, v[N, L]) * a)
  store(t, acc * r)
}
)"),
              ElementsAre("3:13 'r' has no value yet"));
  // A bracket that is left open costs its own line.
  EXPECT_THAT(mistakes_of("program p {\n  a = gemm(x[M, K], w[N, K]\n  store(o, a)\n}"),
              ElementsAre("2:28 expected ')'"));
  EXPECT_THAT(mistakes_of("program p {\n  a = gemm(x[M, K, w[N, K])\n  store(o, a)\n}"),
              ElementsAre("2:18 expected ']'"));
}

TEST(Diagnostics, TheNearestNameIsSaid) {
  const Mistake cases[] = {
      {"store(o, ac)", "'ac' has no value yet; did you mean 'acc'? (a tensor is read by tile(ac)"},
      {"store(o, sigmod(acc))", "there is no function 'sigmod'; did you mean 'sigmoid'?"},
      {"stor(o, acc)", "did you mean 'store'?"},
      {"store(o:b16, acc)",
       "types are f32, bf16, f16, f64, i32, e4m3, e5m2 and u8; did you mean 'bf16'?"},
      {"row_partial(o, summ(acc))", "did you mean 'sum'?"},
      {"store(o, tile(x, row=i))", "each once; did you mean 'rows'?"},
      {"store(o, acc) # no near name\n  store(p, xyzzy(acc))", "there is no function 'xyzzy'\n"},
      {"store(o, acc < 1 < 2)",
       "comparisons do not follow one another; write where(a < b, b < c, 0)"},
      {"store(o, acc * per_column(v, repeat=2))",
       "the shape of 'v' is not known here; write it, as in v[128]"},
      {"store(o, acc * per_column(v[K], repeat=H))",
       "K columns repeated H times have no linear size"},
      {"store(o, acc * per_column(w[K], rows=2))", "a vector of columns takes repeat=, once"},
      {"store(o, combine_rows(log_sum_exp(p[M, N])))",
       "expected ',' and the result to take, there is ')'; a log_sum_exp partial gives max, "
       "log_sum "
       "and log_sum_exp, which is the whole: both added"},
      {"store(o, combine_rows(log_sum_exp(p[M, N]), logsum))", "did you mean 'log_sum'?"},
      {"store(o, store(p, acc))", "'store' has no value; write it as a line of its own"},
  };
  for (const Mistake& c : cases) {
    try {
      parse_program(std::string("program p {\n  acc = gemm(x[M, K], w[N, K])\n  ") + c.line +
                    "\n}\n");
      ADD_FAILURE() << "no error for " << c.line;
    } catch (const ProgramError& error) {
      EXPECT_THAT(error.what(), HasSubstr(c.message)) << c.line;
    }
  }
}

TEST(Diagnostics, TheirNumberAndTheirLengthAreBounded) {
  std::string many = "program p {\n";
  for (int i = 0; i < 50000; ++i)
    many += "  a" + std::to_string(i) + " = nothing" + std::to_string(i) + "\n";
  EXPECT_EQ(mistakes_of(many).size(), 20U);
  try {
    parse_program("program p {\n  store(o, " + std::string(1000000, 'x') + ")\n}");
    FAIL();
  } catch (const ProgramError& error) {
    EXPECT_LT(std::string(error.what()).size(), 2000U);
  }
}

TEST(Diagnostics, AFileThatIsNoProgramSaysHowOneBegins) {
  EXPECT_THAT(mistakes_of(""), ElementsAre("1:1 expected 'program'"));
  EXPECT_THAT(mistakes_of("{\"json\": 1}").front(), "1:1 expected 'program'");
}

TEST(Diagnostics, DeepNestingIsRefused) {
  const std::string deep(100000, '(');
  EXPECT_THROW(parse_program("program p {\n z = " + deep), Error);
  EXPECT_THROW(parse_program("program p {\n z = " + std::string(100000, '-')), Error);
}

}  // namespace
}  // namespace coda
