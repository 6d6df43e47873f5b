// SPDX-License-Identifier: Apache-2.0
// The text of programs: printing and parsing lose nothing, over random programs; what the printer
// writes; what the parser accepts beyond that; and what it says about mistakes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "coda/error.h"
#include "coda/program.h"
#include "program/random_program.h"

namespace coda {
namespace {

using ::testing::HasSubstr;

TEST(ProgramText, PrintingAndParsingLoseNothing) {
  for (uint64_t seed = 0; seed < 1500; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const tests::RandomProgram random = tests::random_program(seed);
    const std::string printed = text(random.program);
    ASSERT_EQ(parse_program(printed), random.program) << printed;
    if (random.finalizer) {
      const std::string finalizer = text(*random.finalizer);
      ASSERT_EQ(parse_program(finalizer), *random.finalizer) << finalizer;
    }
  }
}

TEST(ProgramText, OfCopiesAndMagnitudesToo) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const Program program = tests::with_copies(tests::random_program(seed).program, seed);
    ASSERT_EQ(parse_program(text(program)), program) << text(program);
  }
  const std::string written = R"(program quantise {
  x = tile(x[M, N]:bf16)
  rows = x * scalar(scale)
  store(rows:e4m3, rows)
  store_transposed(columns:e4m3, rows)
  abs_max_into(largest, x)
}
)";
  EXPECT_EQ(text(parse_program(written)), written);
}

TEST(ProgramText, LooksLikeWhatAPersonWrites) {
  const std::string written = R"(program rmsnorm_swiglu {
  acc = gemm(x[M, K]:bf16, w[2*I, K]:bf16)
  preact = acc * per_row(rstd[M])
  store(preact:bf16, preact)
  first, second = split_pairs(preact, concatenated)
  store(out:bf16, silu(first) * second)
}
)";
  EXPECT_EQ(text(parse_program(written)), written);
}

TEST(ProgramText, ShapesOfVectorsAndStoresAreInferred) {
  const Program brief = parse_program(R"(
# The same program, as short as it may be; comments and blank lines go anywhere.
program p {

  acc = gemm(x[M, K], w[N, K])   # nt: K is what they share
  store(out, (acc + tile(x0)) * per_row(r) + per_column(b) * scalar(s))
  row_partial(ss, sum(acc * acc))
  z = select(less(column_index(), 3), acc, -1e-3)
  store(z, -z / 2)
})");
  const Program full = parse_program(R"(program p {
  acc = gemm(x[M, K], w[N, K], nt)
  store(out[M, N]:f32, (acc + tile(x0[M, N])) * per_row(r[M, 1]) +
                       per_column(b[N]) * scalar(s[1, 1]))
  row_partial(ss[M, N], sum(acc * acc))
  z = select(less(column_index(N), 3), acc, -0.001)
  store(z, -z / 2)
})");
  EXPECT_EQ(brief, full);
}

TEST(ProgramText, SegmentsAndSeveralGemms) {
  const Program program = parse_program(R"(program p {
  da = gemm(dgate[M, I], wg[I, D], nn; dup[M, I], wu[I, D])
  dw = gemm(dgate, x[M, D])
  store(da, da)
  store(dw, tile(dw) + dw)
})");
  ASSERT_EQ(program.steps[0].segments().size(), 2u);
  EXPECT_FALSE(program.steps[0].segments()[1].transpose_a);
  EXPECT_TRUE(program.steps[1].segments()[0].transpose_a);
  EXPECT_EQ(program.steps[1].shape, (Shape{"I", "D"}));
  EXPECT_EQ(tile_spaces(program).size(), 2u);
  EXPECT_EQ(parse_program(text(program)), program);
}

struct Mistake {
  const char* line;     // inside a program, after acc = gemm(x[M, K], w[N, K]) on line 2
  const char* message;  // that the error contains
};

TEST(ProgramText, MistakesNameLineAndColumnAndShowTheLine) {
  const Mistake mistakes[] = {
      {"z = acc * nothing",
       "line 3, column 13: 'nothing' has no value yet; a tensor is read by tile(nothing)"},
      {"z = acc * per_row(r[K])\n  store(o, z)",
       "line 3, column 11: shapes [M, N] and [K, 1] do not broadcast in mul"},
      {"z = frobnicate(acc)", "line 3, column 7: there is no function 'frobnicate'"},
      {"acc = acc * 2", "line 3, column 3: 'acc' has a value already"},
      {"exp = acc * 2", "'exp' cannot name a value"},
      {"a, b = split_pairs(acc, concatenated)",
       "N columns cannot be halved for all sizes; write the width as a multiple"},
      {"a, b = exp(acc)", "only split_pairs gives values to several names"},
      {"store(o, acc", "expected ')', there is '}'"},
      {"store(o, acc) store(p, acc)",
       "line 3, column 17: expected the end of the line, there is 'store'"},
      {"store(o, acc)\n  store(o, acc)", "line 4, column 3: tensor 'o' is stored twice"},
      {"store(o, acc)\n  z = acc * 2", "line 4, column 11: its value is never used"},
      {"store(o[M, K], acc)", "a value of shape [M, N] does not fit 'o'"},
      {"store(o:f12, acc)", "types are f32, bf16, f16, f64, i32, e4m3 and e5m2"},
      {"store(o, max(acc))", "max takes 2 operands, not 1"},
      {"store(o, acc + gemm(y[M, D], v[D, D]))",
       "'y' and 'v' share more than one dimension; add the layout"},
      {"store(o, acc + gemm(y[M, A], v[B, C]))", "share no dimension to contract"},
      {"store(o, acc + gemm(y[M, N], v))", "the shape of 'v' is not known here"},
      {"store(x, acc)", "tensor 'x' has shape [M, K], here it would be [M, N]"},
      {"store(o, acc + tile(w))", "do not broadcast"},
      {"row_partial(o, mean(acc))", "reductions are sum, max, log_sum_exp, mean_m2 and abs_max"},
      {"store(o, combine_rows(sum(p[M, N])) * acc)", "a combine belongs to a finalizer"},
      {"store(q, acc)\n  store(o, per_row(r[M]))",
       "a vector that comes from no tile is stored by a program of its own"},
      {"store(o, reduce_group(acc, 64))", "groups of 64 columns do not divide N columns"},
      {"store(o, acc ! 2)", "line 3, column 16: this character has no meaning here"},
      {"store(\"o, acc)", "this quote is not closed"},
      {"store(o, acc * 1e999)", "this number is out of range"},
      {"store(o, tile(t[S, N], rows=acc2[M], repeat=x))", "expected a whole number"},
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

TEST(ProgramText, AMistakeIsMarkedInItsLine) {
  try {
    parse_program("program p {\n  acc = gemm(x[M, K], w[N, K])\n  store(out, acc * r)\n}");
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "line 3, column 20: 'r' has no value yet; a tensor is read by tile(r), "
                 "per_row(r), per_column(r) or "
                 "scalar(r)\n"
                 "    store(out, acc * r)\n"
                 "                     ^");
  }
}

TEST(ProgramText, OfALongLineOnlyTheBeginningIsShown) {
  try {
    parse_program("program p {\n" + std::string(5000, '?'));
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("line 2, column 1"));
    EXPECT_LT(std::string(error.what()).size(), 400U);
  }
}

TEST(ProgramText, DeepNestingIsRefused) {
  const std::string deep(100000, '(');
  EXPECT_THROW(parse_program("program p {\n z = " + deep), Error);
  EXPECT_THROW(parse_program("program p {\n z = " + std::string(100000, '-')), Error);
}

}  // namespace
}  // namespace coda
