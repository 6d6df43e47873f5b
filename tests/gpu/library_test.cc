// SPDX-License-Identifier: Apache-2.0
// Each program of programs/ and each program of its derived backward has kernels for Hopper, which
// NVRTC compiles without a spill.
#include <gtest/gtest.h>

#include <variant>

#include "coda/compile.h"
#include "coda/error.h"
#include "coda/lift.h"
#include "gpu/clean_kernels.h"
#include "gpu/lower.h"
#include "program/library_programs.h"

namespace coda::gpu {
namespace library {
namespace {

const DimValues kSizes{{"M", 16384}, {"N", 2048}, {"K", 2048}, {"S", 4096}, {"H", 16}};

class LibraryKernels : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Programs, LibraryKernels, testing::ValuesIn(tests::library_names()),
                         tests::name_of_library_test);

void add_kernels(const Program& program, std::set<std::string>& texts) {
  LowerOptions options;
  options.uses_table = false;  // which is measured anew from time to time
  for (const KernelLaunch& launch : lower(program, kSizes, options)) texts.insert(launch.source);
}

TEST_P(LibraryKernels, CompileWithoutASpill) {
  std::set<std::string> texts;
  add_kernels(tests::library_program(GetParam()), texts);
  EXPECT_FALSE(texts.empty());
  expect_no_defects(texts);
}

TEST_P(LibraryKernels, OfTheDerivedBackwardCompileWithoutASpill) {
  Graph graph;
  CompileRequest request;
  std::set<std::string> texts;
  CompileOptions options;
  options.sizes = kSizes;
  options.storage = DType::bf16;
  options.rates = h200_rates();
  LiftedTensors tensors;
  for (const std::string& name : tests::with_makers(GetParam()))
    lift(tests::library_program(name), graph, tensors);
  reduce_partials(tensors);
  request = program_request(graph, tensors, true);
  for (GradientRequest& gradient : request.gradients) gradient.dtype = DType::bf16;
  const Plan plan = compile(graph, request, options).plan;
  for (const PlanStep& step : plan.backward)
    if (const Program* program = std::get_if<Program>(&step.work)) add_kernels(*program, texts);
  EXPECT_FALSE(texts.empty());
  expect_no_defects(texts);
}

}  // namespace
}  // namespace library
}  // namespace coda::gpu
