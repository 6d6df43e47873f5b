// SPDX-License-Identifier: Apache-2.0
// Programs that no kernel holds are split: their parts, evaluated one after another in float64, are
// the program, and each part becomes kernels.
#include "hopper/split_program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "coda/error.h"
#include "hopper/choose_config.h"
#include "hopper/gemm_programs.h"
#include "hopper/lower_parts.h"
#include "program/evaluate.h"
#include "program/random_program.h"

namespace coda::hopper {
namespace {

using program::TensorValues;
using ::testing::HasSubstr;

// Every part sees the inputs and what the parts before it store.
TensorValues evaluate_parts(const std::vector<Program>& parts, const DimValues& sizes,
                            const TensorValues& inputs) {
  TensorValues values = inputs;
  TensorValues stored;
  for (const Program& part : parts) {
    for (auto& [name, result] : program::evaluate(part, sizes, values)) {
      values[name] = result;
      stored[name] = std::move(result);
    }
  }
  return stored;
}

void expect_equal(const Program& program, const std::vector<Program>& parts, const DimValues& sizes,
                  uint64_t seed) {
  const TensorValues inputs = testing::random_inputs(program, sizes, seed);
  const TensorValues expected = program::evaluate(program, sizes, inputs);
  const TensorValues stored = evaluate_parts(parts, sizes, inputs);
  for (const auto& [name, values] : expected) {
    const auto found = stored.find(name);
    ASSERT_NE(found, stored.end()) << name << " is stored by no part";
    ASSERT_EQ(found->second.size(), values.size()) << name;
    double largest = 0;
    double off = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      largest = std::max(largest, std::abs(values[i]));
      off = std::max(off, std::abs(values[i] - found->second[i]));
    }
    // Segments of a product are added in another order.
    ASSERT_LE(off, 1e-12 * (1 + largest)) << name << "\n" << text(program);
  }
}

std::vector<Program> programs_of(const LoweredParts& parts) {
  std::vector<Program> programs;
  for (const LoweredPart& part : parts.parts) programs.push_back(part.part.program);
  return programs;
}

Program with_16_bit_operands(Program program, DType type) {
  for (const Step& step : program.steps) {
    for (const GemmSegment& segment : step.segments) {
      program.tensors[segment.a].dtype = type;
      program.tensors[segment.b].dtype = type;
    }
  }
  return program;
}

// Whatever a program has of products, layouts, pairs, groups and reductions, it becomes kernels.
TEST(SplitProgram, RandomProgramsAllRun) {
  constexpr uint64_t kPrograms = 300;
  int split = 0;
  for (uint64_t seed = 0; seed < kPrograms; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const testing::RandomProgram random = testing::random_program(seed);
    const Program program =
        with_16_bit_operands(random.program, seed % 2 == 0 ? DType::bf16 : DType::f16);
    std::vector<KernelLaunch> launches;
    try {
      launches = lower(program, random.sizes, {});
    } catch (const Error& error) {
      ADD_FAILURE() << error.what() << "\n" << text(program);
      continue;
    }
    if (launches.front().note.empty()) continue;
    ++split;
    const LoweredParts parts = split_to_fit(program, random.sizes, {});
    ASSERT_FALSE(parts.parts.empty());
    expect_equal(program, programs_of(parts), random.sizes, seed);
  }
  std::printf("%d of %d random programs split\n", split, static_cast<int>(kPrograms));
  EXPECT_GT(split, 0);
}

}  // namespace
}  // namespace coda::hopper
