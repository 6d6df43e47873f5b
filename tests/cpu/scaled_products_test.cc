// SPDX-License-Identifier: Apache-2.0
// Operands of 8 bits whose blocks have scales, and scales that a tile finds, on the CPU: against
// the float64 meaning, at ragged and whole sizes, and the same bits for any number of threads.
#include <gtest/gtest.h>

#include <span>

#include "cpu/cpu_backend.h"
#include "cpu/program_run.h"
#include "gpu/eight_bit_programs.h"
#include "program/evaluate.h"
#include "program/random_program.h"

namespace coda::cpu {
namespace scaled_products {
namespace {

// Sums of some hundred products in fp32, rounded to bf16 where they are stored; a code of 8 bits
// that falls to the other side of a tie is one of thousands.
constexpr double kBound = 0x1p-8;

void expect_right(const char* text, const DimValues& sizes) {
  const Program program = parse_program(text);
  SCOPED_TRACE(program.name);
  const tests::Values inputs = tests::random_inputs(program, sizes, 3);
  const tests::Values expected = program::evaluate(program, sizes, inputs, {.round_stored = true});
  const tests::Values one =
      tests::run_program(*make_cpu_backend({.threads = 1}), program, sizes, inputs);
  for (const auto& [name, values] : expected)
    EXPECT_LE(relative_error(one.at(name), values), kBound) << name;
  EXPECT_EQ(one, tests::run_program(*make_cpu_backend({.threads = 2}), program, sizes, inputs));
}

TEST(ScaledProducts, MeanTheSameInFp32) {
  for (const char* text : tests::kScaledProducts)
    for (const int64_t m : {5, 77, 256}) expect_right(text, {{"M", m}, {"B", 3}, {"C", 2}});
}

TEST(ScaledProducts, ATileFindsTheScalesOfItsRows) {
  for (const char* text : tests::kQuantisedTiles)
    for (const int64_t m : {1, 77}) expect_right(text, {{"M", m}, {"C", 3}});
}

// The scale is exact: the largest magnitude in fp32 times a number.
TEST(ScaledProducts, ScalesAreThoseOfFloat64BitForBit) {
  const Program program = parse_program(R"(program p {
  x = tile(x[M, 128*C]:bf16)
  store(s, abs_max_group(x, 128) * 0.001953125)
})");
  const DimValues sizes{{"M", 77}, {"C", 5}};
  const tests::Values inputs = tests::random_inputs(program, sizes, 4);
  const tests::Values found = tests::run_program(*make_cpu_backend({}), program, sizes, inputs);
  const tests::Values expected = program::evaluate(program, sizes, inputs);
  EXPECT_EQ(found.at("s"), expected.at("s"));
}

}  // namespace
}  // namespace scaled_products
}  // namespace coda::cpu
