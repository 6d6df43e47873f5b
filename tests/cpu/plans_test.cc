// SPDX-License-Identifier: Apache-2.0
// Compiled plans of whole blocks on the CPU backend, against the plain graph in float64 from the
// same rounded inputs: every output and gradient within the error contract of docs/numerics.md, in
// fp32 and bf16, with poisoned memory; and bitwise the same from run to run and for any number of
// threads.
#include <gtest/gtest.h>

#include <functional>

#include "cpu/plan_run.h"

namespace coda {
namespace {

struct Case {
  const char* name;
  std::function<void(Block&, const LlamaSizes&)> build;
};

const std::vector<Case>& cases() {
  static const std::vector<Case> all{
      {"llama_block", [](Block& b, const LlamaSizes& s) { llama_block(b, s); }},
      {"llama_model", [](Block& b, const LlamaSizes& s) { llama_model(b, 2, true, s); }},
      {"gpt2_model", [](Block& b, const LlamaSizes& s) { gpt2_model(b, 2, s); }},
      {"parallel_block", [](Block& b, const LlamaSizes& s) { parallel_block(b, s); }},
      {"sandwich_block", [](Block& b, const LlamaSizes& s) { sandwich_block(b, s); }},
  };
  return all;
}

class PlansOnCpu : public testing::TestWithParam<std::tuple<size_t, DType>> {};

// The error contract: against float64 from the same inputs, root mean square over the seeds, at
// most that of the plain computation one framework operation at a time.
TEST_P(PlansOnCpu, ErrorsAreAtMostThoseOfTheComputationOpByOp) {
  const auto [which, storage] = GetParam();
  constexpr int kSeeds = 8;
  // Ragged on purpose: no size is a multiple of a tile.
  const LlamaSizes s{.hidden = 72,
                     .heads = 6,
                     .kv_heads = 2,
                     .head_dim = 12,
                     .mlp = 100,
                     .vocab = 67,
                     .sequence = 10};
  const DimValues sizes{{"M", 70}};
  const auto build = [&, which = which](Block& b) { cases()[which].build(b, s); };
  Block b;
  b.storage = storage;
  build(b);
  const OpByOp op_by_op(build, storage);
  CompileOptions options;
  options.sizes = sizes;
  options.storage = storage;
  const Plan plan = compile(b.graph, b.request, options).plan;
  std::vector<Values> inputs;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    inputs.push_back(realistic_inputs(b, sizes, 100 + seed, 16));
  }
  for (const auto& [name, ratio] : error_ratios(b, plan, op_by_op, sizes, inputs)) {
    EXPECT_LE(ratio.value() - 3 * ratio.standard_error(), ratio.bound())
        << name << ": " << ratio.value() << " +- " << ratio.standard_error();
    RecordProperty(name, std::to_string(ratio.value()));
  }
}

TEST_P(PlansOnCpu, SameBitsForAnyNumberOfThreadsAndEveryRun) {
  const auto [which, storage] = GetParam();
  LlamaSizes s{.hidden = 72,
               .heads = 6,
               .kv_heads = 2,
               .head_dim = 12,
               .mlp = 100,
               .vocab = 67,
               .sequence = 10};
  const DimValues sizes{{"M", 70}};
  Block b;
  b.storage = storage;
  cases()[which].build(b, s);
  CompileOptions options;
  options.sizes = sizes;
  options.storage = storage;
  const Plan plan = compile(b.graph, b.request, options).plan;
  const Values inputs = realistic_inputs(b, sizes, 5, 16);
  const Tensors first = run(plan, sizes, inputs, 1);
  for (int threads : {1, 2, 3}) {
    const Tensors again = run(plan, sizes, inputs, threads);
    for (const auto& [name, bytes] : first.bytes())
      EXPECT_EQ(bytes, again.bytes().at(name)) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Blocks, PlansOnCpu,
                         testing::Combine(testing::Range<size_t>(0, 5),
                                          testing::Values(DType::f32, DType::bf16)),
                         [](const auto& info) {
                           return std::string(cases()[std::get<0>(info.param)].name) + "_" +
                                  std::string(name_of(std::get<1>(info.param)));
                         });

}  // namespace
}  // namespace coda
