// SPDX-License-Identifier: Apache-2.0
// Programs on the GPU against their meaning in float64, from fresh random inputs and with poisoned
// memory. The judge of an error is the program evaluated in float64 with every store rounded to its
// type: a kernel's error against the exact result is at most that, and what fp32 arithmetic adds.
// Needs a GPU; skipped elsewhere.
#include <gtest/gtest.h>

#include <bit>

#include "coda/error.h"
#include "hopper_gpu/device_run.h"
#include "hopper_gpu/program_cases.h"
#include "program/evaluate.h"

namespace coda::testing {
namespace {

// Sums of a few hundred products of numbers around 1 in fp32, and elementary functions of about
// 1e-6: what a result may be off beside its rounding.
constexpr double kSinglePrecision = 1e-5;
// Random programs subtract values that are nearly equal, and round intermediate values to 16 bits,
// where one that falls to the other side of a tie changes an element by a unit in the last place.
constexpr double kRandomPrograms = 1e-3;

DType type_of(const Program& program, const std::string& name) {
  for (const TensorDecl& decl : program.tensors) {
    if (decl.name == name) return decl.dtype;
  }
  throw InternalError("no tensor " + name);
}

std::string sizes_text(const DimValues& sizes) {
  std::string text;
  for (const auto& [name, value] : sizes) text += " " + name + "=" + std::to_string(value);
  return text;
}

// Runs twice: the same bits.
void check(const Program& program, const DimValues& sizes, uint64_t seed, RowGaps gaps,
           double single_precision) {
  SCOPED_TRACE(program.name + " with" + sizes_text(sizes) + ", seed " + std::to_string(seed));
  const Values inputs = random_inputs(program, sizes, seed);
  Values results;
  try {
    results = run_on_gpu(program, sizes, inputs, gaps);
    const Values again = run_on_gpu(program, sizes, inputs, gaps);
    for (const auto& [name, values] : results) {
      int different = 0;
      for (size_t i = 0; i < values.size(); ++i) {
        if (std::isnan(values[i]) && std::isnan(again.at(name)[i])) continue;
        different +=
            std::bit_cast<uint64_t>(values[i]) != std::bit_cast<uint64_t>(again.at(name)[i]);
      }
      EXPECT_EQ(different, 0) << name << ": elements that differ from run to run";
    }
  } catch (const Error& error) {
    ADD_FAILURE() << error.what() << "\n" << text(program);
    return;
  }
  const Values exact = program::evaluate(program, sizes, inputs);
  const Values rounded = program::evaluate(program, sizes, inputs, {.round_stored = true});
  for (const auto& [name, expected] : exact) {
    const double error = relative_error(results.at(name), expected);
    const double allowed = relative_error(rounded.at(name), expected) + single_precision;
    EXPECT_LE(error, allowed) << name << " (" << name_of(type_of(program, name)) << ")\n"
                              << text(program);
  }
}

DimValues bind(const Program& program, const DimValues& sizes) {
  DimValues bound;
  for (const TensorDecl& decl : program.tensors) {
    for (const Dim& dim : {decl.shape.rows, decl.shape.cols}) {
      for (const auto& [symbol, factor] : dim.terms()) bound[symbol] = sizes.at(symbol);
    }
  }
  return bound;
}

class OnGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string why = why_no_gpu();
    if (!why.empty()) GTEST_SKIP() << "skipped, no GPU: " << why;
  }
};

using WrittenPrograms = OnGpu;

TEST_F(WrittenPrograms, OfTheBenchmark) {
  const std::vector<DimValues> shapes{
      {{"M", 128}, {"N", 256}, {"K", 64}, {"S", 50}},
      {{"M", 300}, {"N", 392}, {"K", 200}, {"S", 50}},
      {{"M", 1}, {"N", 8}, {"K", 8}, {"S", 3}},
      {{"M", 520}, {"N", 1000}, {"K", 136}, {"S", 50}},
  };
  for (const Program& program : written_programs("bench/hopper_programs/programs")) {
    uint64_t seed = 1;
    for (const DimValues& sizes : shapes) {
      check(program, bind(program, sizes), seed++, {.gap = 0, .multiple = 8}, kSinglePrecision);
    }
  }
}

// Sizes and pitches that the copy engine cannot address.
TEST_F(WrittenPrograms, WithUnalignedRows) {
  const std::vector<DimValues> shapes{{{"M", 77}, {"N", 129}, {"K", 65}, {"S", 50}},
                                      {{"M", 130}, {"N", 67}, {"K", 31}, {"S", 9}}};
  for (const Program& program : written_programs("bench/hopper_programs/programs")) {
    uint64_t seed = 11;
    for (const DimValues& sizes : shapes) {
      check(program, bind(program, sizes), seed++, {.gap = 3, .multiple = 1}, kSinglePrecision);
    }
  }
}

TEST_F(WrittenPrograms, OfTheExamplesIn16Bits) {
  const DimValues sizes{{"M", 200}, {"D", 328}, {"I", 264}};
  for (const DType type : {DType::bf16, DType::f16}) {
    for (const Program& program : written_programs("examples/programs")) {
      check(with_storage(program, type), bind(program, sizes), 21, {.gap = 0, .multiple = 8},
            kSinglePrecision);
    }
  }
}

using RandomPrograms = OnGpu;

// What the backend refuses (docs/gpu.md) it refuses with an error, before anything runs.
TEST_F(RandomPrograms, AgreeWithFloat64) {
  constexpr int kChecked = 60;
  int checked = 0;
  int refused = 0;
  for (uint64_t seed = 1; checked < kChecked; ++seed) {
    const RandomProgram random = random_program(seed);
    const Program program = with_operands(random.program, seed % 2 == 0 ? DType::bf16 : DType::f16);
    const RowGaps gaps = seed % 3 == 0 ? RowGaps{} : RowGaps{.gap = 0, .multiple = 8};
    if (!refusal(program, random.sizes).empty()) {
      ++refused;
      continue;
    }
    ++checked;
    check(program, random.sizes, seed, gaps, kRandomPrograms);
    if (random.finalizer) check(*random.finalizer, random.sizes, seed, gaps, kRandomPrograms);
  }
  std::cout << checked << " random programs ran, " << refused << " were refused\n";
}

}  // namespace
}  // namespace coda::testing
