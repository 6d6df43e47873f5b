// SPDX-License-Identifier: Apache-2.0
// The C++ face: it makes the same programs as text, and its errors name the caller's line.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "coda/error.h"
#include "coda/program_builder.h"

namespace coda {
namespace {

using ::testing::HasSubstr;

TEST(ProgramBuilder, MakesTheSameProgramAsText) {
  ProgramBuilder p("p");
  auto acc = p.gemm("x[M, K]:bf16", "w[2*I, K]:bf16");
  auto z = acc * p.load_per_row("rstd");
  p.store("preact:bf16", z);
  auto [gate, up] = p.split_pairs(z, Pairs::concatenated);
  p.store("out", silu(gate) * up);
  EXPECT_EQ(text(p.build()), text(parse_program(R"(program p {
    z = gemm(x[M, K]:bf16, w[2*I, K]:bf16) * per_row(rstd)
    store(preact:bf16, z)
    gate, up = split_pairs(z, concatenated)
    store(out, silu(gate) * up)
  })")));
}

TEST(ProgramBuilder, OperatorsAndNumbers) {
  ProgramBuilder p("p");
  auto x = p.load_tile("x[M, N]");
  p.store("y", -(2.0 * x + 1) / max(x, 0.5) - exp(x));
  auto c = p.constant(3);
  p.store("z", select(less(x, 0.0), x, c));
  EXPECT_EQ(text(p.build()), text(parse_program(R"(program p {
    x = tile(x[M, N])
    store(y, -(2 * x + 1) / max(x, 0.5) - exp(x))
    store(z, select(less(x, 0), x, 3))
  })")));
}

TEST(ProgramBuilder, GemmDefaultsToXAndW) {
  ProgramBuilder p("p");
  p.store("out", p.gemm("x", "w"));
  EXPECT_EQ(p.build(), parse_program("program p {\n store(out, gemm(x[M, K], w[N, K]))\n}"));
}

TEST(ProgramBuilder, UnusedMembersOfPairsCostNothing) {
  ProgramBuilder p("p");
  auto [first, second] = p.split_pairs(p.load_tile("x[M, 2*I]"), Pairs::interleaved);
  p.store("out", second);
  EXPECT_EQ(
      p.build(),
      parse_program(
          "program p {\n _, b = split_pairs(tile(x[M, 2*I]), interleaved)\n store(out, b)\n}"));
}

std::string error_of(const auto& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(ProgramBuilder, ErrorsNameTheLine) {
  ProgramBuilder p("p");
  auto x = p.load_tile("x[M, N]");
  auto y = p.load_tile("y[M, K]");
  const int line = __LINE__ + 1;
  const std::string error = error_of([&] { x + y; });
  EXPECT_EQ(error, "builder_test.cc:" + std::to_string(line) +
                       ": shapes [M, N] and [M, K] do not broadcast in add");
  EXPECT_THAT(error_of([&] { p.split_pairs(x, Pairs::concatenated); }),
              HasSubstr("cannot be halved"));
  EXPECT_THAT(error_of([&] { p.store("x[M", x); }), HasSubstr("expected ']'"));
  ProgramBuilder other("q");
  EXPECT_THAT(error_of([&] { other.store("x", x); }),
              HasSubstr("a value belongs to another ProgramBuilder"));
  EXPECT_THAT(error_of([&] { other.load_tile("z[M, N]") + x; }),
              HasSubstr("belongs to another ProgramBuilder"));
}

TEST(ProgramBuilder, ErrorsFoundAtTheEndNameTheLineOfTheStep) {
  ProgramBuilder p("p");
  auto x = p.load_tile("x[M, N]");
  p.store("o", x);
  const int line = __LINE__ + 1;
  p.store("o", x);
  EXPECT_THAT(error_of([&] { p.build(); }), HasSubstr("builder_test.cc:" + std::to_string(line) +
                                                      ": program 'p': tensor 'o' is stored twice"));
}

}  // namespace
}  // namespace coda
