// SPDX-License-Identifier: Apache-2.0
// Two programs as one store what they store one behind the other; and what is no such pair.
#include "program/continued.h"

#include <gtest/gtest.h>

#include <random>

#include "coda/error.h"
#include "program/evaluate.h"

namespace coda::program {
namespace {

constexpr const char* kFirst = R"(
program update {
  w = tile(master[R, C]) - 0.125 * tile(gradient[R, C])
  store(master, w)
  store(copy:bf16, w)
})";
constexpr const char* kSecond = R"(
program copies {
  w = tile(copy[R, C]:bf16)
  s = w * scalar(factor)
  store(rows:e4m3, s)
  store_transposed(columns:e4m3, s)
  abs_max_into(largest, w)
})";

std::vector<double> random_values(size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  std::vector<double> values(count);
  for (double& x : values) x = static_cast<float>(normal(random));
  return values;
}

TEST(ContinuedProgram, StoresWhatBothStoreOneBehindTheOther) {
  const Program first = parse_program(kFirst);
  const Program second = parse_program(kSecond);
  const Program both = continued(first, second);
  verify(both);
  for (const auto& [rows, cols] : {std::pair(1, 1), {5, 7}, {64, 64}, {65, 130}}) {
    SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(cols));
    const DimValues sizes{{"R", rows}, {"C", cols}};
    const auto count = static_cast<size_t>(rows * cols);
    TensorValues values{{"master", random_values(count, 1)},
                        {"gradient", random_values(count, 2)},
                        {"factor", {16}},
                        {"largest", {0.5}}};
    const EvaluateOptions stored{.round_stored = true};
    const TensorValues at_once = evaluate(both, sizes, values, stored);
    TensorValues expected = evaluate(first, sizes, values, stored);
    values["copy"] = expected.at("copy");
    for (const auto& [name, its] : evaluate(second, sizes, values, stored)) expected[name] = its;
    EXPECT_EQ(at_once, expected);
    EXPECT_EQ(at_once.size(), 5U);
  }
}

TEST(ContinuedProgram, ReadsNothingElseOfTheOneBefore) {
  const Program first = parse_program(kFirst);
  for (const char* second : {R"(program by_row { store(y, tile(copy[R, C]:bf16, rows=i[R])) })",
                             R"(program repeated { store(y, tile(copy[R, C]:bf16, repeat=2)) })"})
    EXPECT_THROW(continued(first, parse_program(second)), InternalError) << second;
}

TEST(ContinuedProgram, HasOneDeclarationOfATensor) {
  const Program first = parse_program(kFirst);
  const Program second = parse_program("program other { store(y, tile(copy[R, C]:f16)) }");
  EXPECT_THROW(continued(first, second), InternalError);
}

}  // namespace
}  // namespace coda::program
