// SPDX-License-Identifier: Apache-2.0
// Losses made in blocks of rows on the CPU backend: within the error contract, like plans that
// store logits whole; the same bits for any number of threads, with memory poisoned before every
// block; and a row's loss does not depend on the blocks.
#include <gtest/gtest.h>

#include <functional>

#include "cpu/plan_run.h"

namespace coda {
namespace {

// Ragged on purpose: the last block has 6 rows.
const LlamaSizes kBlockRows{.hidden = 36,
                            .heads = 3,
                            .kv_heads = 1,
                            .head_dim = 12,
                            .mlp = 44,
                            .vocab = 131,
                            .sequence = 10};
const DimValues kRows{{"M", 70}};

struct Model {
  const char* name;
  std::function<void(Block&)> build;
};
const std::vector<Model>& models() {
  static const std::vector<Model> all{
      {"llama_tied", [](Block& b) { llama_model(b, 1, true, kBlockRows); }},
      {"llama_untied", [](Block& b) { llama_model(b, 1, false, kBlockRows); }},
      {"gpt2", [](Block& b) { gpt2_model(b, 1, kBlockRows); }},
  };
  return all;
}

class RowBlocksOnCpu : public testing::TestWithParam<std::tuple<size_t, DType>> {
 protected:
  const Model& model() const { return models()[std::get<0>(GetParam())]; }
  DType storage() const { return std::get<1>(GetParam()); }

  void build(Block& b) const {
    b.storage = storage();
    model().build(b);
    // As a trainer has it, of one of the types.
    for (SeededOutput& seed : b.request.seeds) seed.is_early = storage() == DType::bf16;
  }
  Plan plan(const Block& b, int64_t loss_rows, bool overwrite = true) const {
    CompileOptions options;
    options.sizes = kRows;
    options.storage = storage();
    options.overwrite_saved = overwrite;
    options.loss_rows = loss_rows;
    Plan plan = compile(b.graph, b.request, options).plan;
    EXPECT_EQ(plan.loops.size(), loss_rows > 0 ? 1U : 0U);
    return plan;
  }
};

TEST_P(RowBlocksOnCpu, ErrorsAreAtMostThoseOfTheComputationOpByOp) {
  constexpr uint64_t kSeeds = 8;
  Block b;
  build(b);
  const OpByOp op_by_op([this](Block& block) { model().build(block); }, storage());
  std::vector<Values> inputs;
  for (uint64_t seed = 0; seed < kSeeds; ++seed)
    inputs.push_back(realistic_inputs(b, kRows, 300 + seed, 16));
  expect_contract(error_ratios(b, plan(b, 64), op_by_op, kRows, inputs));
}

TEST_P(RowBlocksOnCpu, SameBitsForAnyNumberOfThreadsAndEveryRun) {
  Block b;
  build(b);
  const Values inputs = realistic_inputs(b, kRows, 7, 16);
  for (const bool overwrite : {false, true}) {
    const Plan in_blocks = plan(b, 64, overwrite);
    const Tensors first = run(in_blocks, kRows, inputs, 1);
    for (int threads : {1, 3}) {
      const Tensors again = run(in_blocks, kRows, inputs, threads);
      for (const auto& [name, bytes] : first.bytes())
        EXPECT_EQ(bytes, again.bytes().at(name)) << name;
    }
  }
}

TEST_P(RowBlocksOnCpu, ALossIsBitwiseThatOfThePlanWithoutBlocks) {
  Block b;
  build(b);
  const Values inputs = realistic_inputs(b, kRows, 8, 16);
  const Tensors whole = run(plan(b, 0), kRows, inputs, 2);
  for (const int64_t rows : {64, 128}) {
    const Tensors blocks = run(plan(b, rows), kRows, inputs, 2);
    for (const char* name : {"loss", "loss_rows"})
      EXPECT_EQ(blocks.bytes().at(name), whole.bytes().at(name)) << name << ", " << rows;
  }
}

// Gradients that hold something already are added to, once.
TEST_P(RowBlocksOnCpu, GradientsAreAddedTo) {
  Block b;
  build(b);
  const Values inputs = realistic_inputs(b, kRows, 9, 16);
  const Tensors plain = run(plan(b, 64), kRows, inputs, 2);
  for (GradientRequest& g : b.request.gradients) g.accumulate = true;
  Values with_gradients = inputs;
  for (const GradientRequest& g : b.request.gradients)
    with_gradients[g.name] = std::vector<double>(plain.get(g.name).size(), 0.5);
  const Tensors sums = run(plan(b, 64), kRows, with_gradients, 2);
  for (const GradientRequest& g : b.request.gradients) {
    const std::vector<double> alone = plain.get(g.name);
    const std::vector<double> sum = sums.get(g.name);
    // A dozen roundings (of a row of the embedding's gradient one a token) of numbers below 2.
    for (size_t i = 0; i < sum.size(); ++i)
      ASSERT_NEAR(sum[i] - 0.5, alone[i], 12 * 6e-8 * 2) << g.name << ", element " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, RowBlocksOnCpu,
                         testing::Combine(testing::Range<size_t>(0, 3),
                                          testing::Values(DType::f32, DType::bf16)),
                         [](const auto& info) {
                           return std::string(models()[std::get<0>(info.param)].name) + "_" +
                                  std::string(name_of(std::get<1>(info.param)));
                         });

}  // namespace
}  // namespace coda
