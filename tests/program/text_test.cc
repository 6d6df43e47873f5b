// SPDX-License-Identifier: Apache-2.0
// The text of programs: printing and parsing lose nothing, over random programs; what the printer
// writes; what the parser accepts beyond that.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "coda/error.h"
#include "coda/program.h"
#include "program/random_program.h"

namespace coda {
namespace {

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

TEST(ProgramText, NamesThatAreNoWordsAreQuoted) {
  for (const char* name : {"w.T", "a b", "layer/0", "x.", "1"}) {
    const std::string written =
        std::string("program p {\n  store(y, tile(\"") + name + "\"[M, N]))\n}\n";
    const Program program = parse_program(written);
    EXPECT_EQ(parse_program(text(program)), program) << text(program);
    EXPECT_THAT(text(program), testing::HasSubstr(std::string("\"") + name + "\"[M, N]"));
  }
}

TEST(ProgramText, ComparisonsAndWhereHaveOnePrintedForm) {
  EXPECT_EQ(text(parse_program(R"(program p {
  x = tile(x[M, N])
  store(a, where(x > 0, x, 0.1 * x))
  store(b, where(x <= 1, where(x != 2, x, 3), 4))
})")),
            R"(program p {
  x = tile(x[M, N])
  store(a, select(less(0, x), x, 0.1 * x))
  store(b, select(less_equal(x, 1), select(not_equal(x, 2), x, 3), 4))
}
)");
}

TEST(ProgramText, AVectorOfColumnsMayBeAWeightOfEachHead) {
  const std::string written = R"(program qk_norm {
  acc = gemm(h[M, D]:bf16, wq[128*H, D]:bf16)
  squares = reduce_group(acc * acc, 128)
  scale = repeat_group(rsqrt(squares * 0.0078125 + 1e-06), 128)
  store(q:bf16, acc * scale * per_column(w[128], repeat=H))
}
)";
  const Program program = parse_program(written);
  EXPECT_EQ(parse_program(text(program)), program) << text(program);
  EXPECT_NE(text(program).find("per_column(w[128], repeat=H)"), std::string::npos);
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

}  // namespace
}  // namespace coda
