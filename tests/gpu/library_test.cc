// SPDX-License-Identifier: Apache-2.0
// Each program of programs/, each program of its derived backward and each program of the plans of
// blocks has kernels for every target, which NVRTC compiles for the target's own GPUs without a
// spill; those of programs/ for every architecture. So no kernel has an instruction that those GPUs
// lack, which the compiler itself, asked for PTX, would not say.
#include <gtest/gtest.h>

#include <cstdio>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "coda/compile.h"
#include "coda/eight_bits.h"
#include "coda/error.h"
#include "coda/lift.h"
#include "gpu/clean_kernels.h"
#include "gpu/lower.h"
#include "plan/blocks.h"
#include "program/library_programs.h"

namespace coda::gpu {
namespace library {
namespace {

const DimValues kSizes{{"M", 16384}, {"N", 2048}, {"K", 2048}, {"S", 4096}, {"H", 16}};

const std::vector<const Target*> kTargets{&sm90(), &sm80()};
// The cards that people own, and those of data centres.
const std::vector<const Target*> kArchitectures{&sm90(), &sm80(), &sm80_for(8, 6), &sm80_for(8, 9),
                                                &sm80_for(12, 0)};

using TargetTexts = std::map<const Target*, std::set<std::string>>;

class LibraryKernels : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Programs, LibraryKernels, testing::ValuesIn(tests::library_names()),
                         tests::name_of_library_test);

// Adds the kernels of a program, for each target that supports its types.
void add_kernels(const Program& program, const DimValues& sizes,
                 const std::vector<const Target*>& targets, TargetTexts& texts) {
  for (const Target* target : targets) {
    if (!why_not_supported(program, *target).empty()) continue;
    LowerOptions options;
    options.target = target;
    options.multiprocessors = target->multiprocessors;
    options.uses_table = false;  // which is measured anew from time to time
    for (const KernelLaunch& launch : lower(program, sizes, options))
      texts[target].insert(launch.source);
  }
}

void add_kernels(const Plan& plan, const DimValues& sizes,
                 const std::vector<const Target*>& targets, TargetTexts& texts) {
  for (const auto* steps : {&plan.forward, &plan.backward}) {
    for (const PlanStep& step : *steps) {
      if (const Program* program = std::get_if<Program>(&step.work))
        add_kernels(*program, sizes, targets, texts);
    }
  }
}

void expect_no_defects_of(const TargetTexts& texts) {
  EXPECT_FALSE(texts.empty());
  const std::optional<NvrtcCompiler> nvrtc = find_nvrtc();
  if (!nvrtc) GTEST_SKIP() << "no NVRTC";
  for (const auto& [target, sources] : texts) {
    SCOPED_TRACE(target->architecture);
    if (nvrtc->version() < target->compiler) {
      std::printf("%s is not known to NVRTC\n", std::string(target->architecture).c_str());
      continue;
    }
    expect_no_defects(NvrtcCompiler(*target), sources, known_clean_kernels());
  }
}

TEST_P(LibraryKernels, CompileWithoutASpill) {
  TargetTexts texts;
  add_kernels(tests::library_program(GetParam()), kSizes, kArchitectures, texts);
  expect_no_defects_of(texts);
}

TEST_P(LibraryKernels, OfTheDerivedBackwardCompileWithoutASpill) {
  Graph graph;
  CompileRequest request;
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
  Plan plan = compile(graph, request, options).plan;
  plan.forward.clear();
  TargetTexts texts;
  add_kernels(plan, kSizes, kTargets, texts);
  expect_no_defects_of(texts);
}

// The kernels of a block's plan.
void add_block(void (*build)(Block&, const LlamaSizes&), EightBits eight_bits,
               const std::vector<const Target*>& targets, TargetTexts& texts) {
  const LlamaSizes model{.hidden = 256,
                         .heads = 4,
                         .kv_heads = 2,
                         .head_dim = 64,
                         .mlp = eight_bits == EightBits::none ? 344 : 352,  // 8 bits: 16 a piece
                         .vocab = 504,
                         .sequence = 20};
  CompileOptions options;
  options.sizes = {{"M", 160}};
  options.storage = DType::bf16;
  options.rates = h200_rates();
  options.eight_bits = eight_bits;
  Block block;
  block.storage = options.storage;
  build(block, model);
  add_kernels(compile(block.graph, block.request, options).plan, options.sizes, targets, texts);
}

// Blocks of models, in whose plans products are fused with what is before and behind them. (The
// kernels of sm90 run in the tests on a GPU.)
TEST(PlanKernels, CompileWithoutASpill) {
  TargetTexts texts;
  for (const auto& build : {+[](Block& b, const LlamaSizes& s) { llama_block(b, s); },
                            +[](Block& b, const LlamaSizes& s) { gpt2_model(b, 1, s); },
                            +[](Block& b, const LlamaSizes& s) { parallel_block(b, s); },
                            +[](Block& b, const LlamaSizes& s) { sandwich_block(b, s); }})
    add_block(build, EightBits::none, {&sm80()}, texts);
  expect_no_defects_of(texts);
}

TEST(PlanKernels, OfTheRecipesOf8BitsCompileWithoutASpill) {
  TargetTexts texts;
  for (const EightBits recipe : {EightBits::fp8, EightBits::fp8_kept})
    add_block([](Block& b, const LlamaSizes& s) { llama_block(b, s); }, recipe,
              {&sm89(), &sm80_for(12, 0)}, texts);
  expect_no_defects_of(texts);
}

}  // namespace
}  // namespace library
}  // namespace coda::gpu
