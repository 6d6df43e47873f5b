// SPDX-License-Identifier: Apache-2.0
// Plans whose widest values are made in blocks of rows, run in float64: equal to the graph as it
// was written for any number of rows and any blocks; what cannot be done in blocks is not, and the
// plan says why.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "base/golden.h"
#include "base/seeds.h"
#include "plan/plain_graph.h"
#include "plan/plan_evaluator.h"
#include "plan/random_graphs.h"
#include "plan/search/search.h"

namespace coda {
namespace {

using testing::HasSubstr;

constexpr int64_t kVocabulary = 83;  // wider than everything else in the blocks

LlamaSizes sizes_of_model() {
  LlamaSizes s;
  s.vocab = kVocabulary;
  s.sequence = Dim("T");
  return s;
}

// A head with a bias and no norm before it: its weight's and its bias's gradient are sums over
// rows.
void biased_head(Block& b, const LlamaSizes& s) {
  const Value x = b.graph.input("x", {"M", s.hidden});
  b.wants_gradient(x, "d_x");
  const Value targets = b.graph.table("targets", {"M", 1}, DType::i32);
  const Value logits =
      conv1d(x, b.parameter("head", {s.hidden, s.vocab})) + b.parameter("bias", {1, s.vocab});
  const CrossEntropy loss = cross_entropy(logits, targets);
  b.request.outputs = {{"loss", loss.mean}, {"logits", logits}};
  b.request.seeds.push_back({loss.mean, b.graph.input("scale", {1, 1})});
}

// A norm and a head with a loss that has more than the plain cross-entropy's terms.
void head_with(Block& b, const LlamaSizes& s, const CrossEntropyOptions& options, bool capped) {
  const Value x = b.graph.input("x", {"M", s.hidden});
  b.wants_gradient(x, "d_x");
  const Value targets = b.graph.table("targets", {"M", 1}, DType::i32);
  const Value h = rms_norm(x, b.parameter("norm", {1, s.hidden}), 1e-5);
  Value logits = linear(h, b.parameter("head", {s.vocab, s.hidden}));
  if (capped) logits = soft_cap(logits, 2);
  const CrossEntropy loss = cross_entropy(logits, targets, options);
  b.request.outputs = {{"loss", loss.mean}, {"loss_rows", loss.rows}};
  b.request.seeds.push_back({loss.mean, b.graph.input("scale", {1, 1})});
}

struct RowBlockCase {
  std::string name;
  std::function<void(Block&)> build;
};

const std::vector<RowBlockCase>& row_block_cases() {
  static const std::vector<RowBlockCase> all{
      {"llama_tied", [](Block& b) { llama_model(b, 1, true, sizes_of_model()); }},
      {"llama_untied", [](Block& b) { llama_model(b, 1, false, sizes_of_model()); }},
      {"gpt2", [](Block& b) { gpt2_model(b, 1, sizes_of_model()); }},
      {"biased_head", [](Block& b) { biased_head(b, sizes_of_model()); }},
      {"smoothed",
       [](Block& b) { head_with(b, sizes_of_model(), {.label_smoothing = 0.1}, false); }},
      {"z_loss", [](Block& b) { head_with(b, sizes_of_model(), {.z_loss = 0.01}, false); }},
      {"capped", [](Block& b) { head_with(b, sizes_of_model(), {}, true); }},
      {"smoothed_z_loss_capped",
       [](Block& b) {
         head_with(b, sizes_of_model(), {.label_smoothing = 0.1, .z_loss = 0.01}, true);
       }},
  };
  return all;
}

// One sequence of all rows.
DimValues rows(int64_t count) { return {{"M", count}, {"T", count}}; }

// Two blocks, and one of 2 rows.
CompileOptions in_three_blocks(bool overwrite_saved = false) {
  CompileOptions options;
  options.sizes = rows(130);
  options.loss_rows = 64;
  options.overwrite_saved = overwrite_saved;
  return options;
}

void expect_equal_in_blocks(const Block& b, const Plan& plan, const DimValues& sizes,
                            uint64_t seed) {
  auto inputs = random_inputs(b.graph, sizes, seed);
  if (inputs.contains("targets")) inputs.at("targets")[0] = 1;  // some row counts
  PlanEvaluator evaluator(plan, sizes);
  evaluator.values = inputs;
  const Values expected = plain_values(b.graph, b.request, inputs, sizes);
  std::map<std::string, double> before;
  for (const GradientRequest& g : b.request.gradients) {
    if (!g.accumulate) continue;
    before[g.name] = 0.5;
    evaluator.values[g.name] = std::vector<double>(expected.at(g.name).size(), 0.5);
  }
  evaluator.run(plan.forward);
  evaluator.forget_temporaries();
  evaluator.run(plan.backward);
  for (const auto& [name, value] : expected) {
    std::vector<double> wanted = value;
    for (double& x : wanted) x += before[name];
    ASSERT_TRUE(evaluator.values.contains(name)) << name;
    EXPECT_LT(std::sqrt(squared_error(evaluator.values.at(name), wanted)), 1e-11) << name;
  }
}

class InBlocks : public testing::TestWithParam<size_t> {};

// Blocks of 64 rows and of several times that; last blocks of 1 row, of some, of as many; one block
// that is larger than everything.
TEST_P(InBlocks, PlansEqualTheGraph) {
  std::mt19937_64 random(GetParam());
  for (int trial = 0; trial < 6; ++trial) {
    const int64_t block = 64 * (1 + static_cast<int64_t>(random() % 2));
    const int64_t counts[] = {1, block - 1, block, block + 1, 2 * block + 1, 3 * block - 5};
    const DimValues sizes = rows(counts[trial]);
    Block b;
    row_block_cases()[GetParam()].build(b);
    const bool adds = random() % 2 == 0;
    for (GradientRequest& g : b.request.gradients) g.accumulate = adds;
    const bool is_early = random() % 2 == 0;
    for (SeededOutput& seed : b.request.seeds) seed.is_early = is_early;
    CompileOptions options;
    options.sizes = sizes;
    options.loss_rows = block - static_cast<int64_t>(random() % 64);  // is rounded up
    options.overwrite_saved = random() % 2 == 0;
    options.objective = random() % 2 == 0 ? Objective::memory : Objective::speed;
    SCOPED_TRACE(row_block_cases()[GetParam()].name + ": " + std::to_string(counts[trial]) +
                 " rows, " + std::to_string(options.loss_rows) + " a block, adds " +
                 std::to_string(adds) + ", scale known early " + std::to_string(is_early) +
                 ", overwrites " + std::to_string(options.overwrite_saved));
    const Plan plan = compile(b.graph, b.request, options).plan;
    ASSERT_EQ(plan.loops.size(), 1U) << testing::PrintToString(plan.notes);
    EXPECT_EQ(plan.loops[0].rows, block);
    expect_equal_in_blocks(b, plan, sizes, 10 + static_cast<uint64_t>(trial));
  }
}

TEST_P(InBlocks, EveryForcedChoiceEqualsTheGraph) {
  for (int choice = 0; choice < 8; ++choice) {
    Block b;
    row_block_cases()[GetParam()].build(b);
    b.request.seeds[0].is_early = choice >= 4;
    const CompileOptions options = in_three_blocks();
    const Forced forced{.fold = std::vector<bool>(16, choice / 2 % 2 != 0),
                        .pin = std::vector<bool>(16, choice % 2 != 0)};
    SCOPED_TRACE("choice " + std::to_string(choice));
    const Plan plan = compile(b.graph, b.request, options, forced).plan;
    ASSERT_EQ(plan.loops.size(), 1U) << testing::PrintToString(plan.notes);
    expect_equal_in_blocks(b, plan, options.sizes, 3);
  }
}

// Outside of the loop nothing of the plan's own is as wide as the vocabulary.
TEST_P(InBlocks, NothingWideIsStoredWhole) {
  Block b;
  row_block_cases()[GetParam()].build(b);
  const CompileOptions options = in_three_blocks();
  for (const PlanTensor& t : compile(b.graph, b.request, options).plan.tensors) {
    const bool is_wide = t.decl.shape == Shape{Dim("M"), Dim(kVocabulary)};
    const bool is_own = t.role == TensorRole::temporary || t.role == TensorRole::saved;
    const bool is_column_sum = t.decl.kind == TensorKind::column_partial;  // a 64th of it
    EXPECT_TRUE(!is_wide || !is_own || is_column_sum || t.loop == 0) << t.decl.name;
  }
}

INSTANTIATE_TEST_SUITE_P(RowBlocks, InBlocks, testing::Range<size_t>(0, row_block_cases().size()),
                         [](const auto& info) { return row_block_cases()[info.param].name; });

// For a GPU the loop reads a copy of the caller's logits with rows at multiples of 16 bytes; if
// they are there anyway, the logits themselves.
TEST(RowBlocks, LogitsOfRowsThatAreNotAlignedHaveACopyForTheLoop) {
  for (const int64_t vocabulary : {kVocabulary, int64_t{88}}) {
    LlamaSizes s = sizes_of_model();
    s.vocab = vocabulary;
    Block b;
    biased_head(b, s);
    CompileOptions options = in_three_blocks();
    options.storage = DType::bf16;
    options.aligns_outputs = true;
    const Plan plan = compile(b.graph, b.request, options).plan;
    ASSERT_EQ(plan.loops.size(), 1U);
    std::set<std::string> read;
    for (const PlanStep& step : plan.forward)
      for (const StepTensor& t : step_tensors(step))
        if (t.read && step.loop == 0) read.insert(t.name);
    const bool is_copied = vocabulary == kVocabulary;
    EXPECT_EQ(read.contains("logits"), !is_copied);
    EXPECT_EQ(read.contains("logits.aligned"), is_copied);
    if (is_copied) {
      EXPECT_EQ(plan.tensor("logits.aligned").loop, 0);
    }
    expect_equal_in_blocks(b, plan, options.sizes, 3);
  }
}

// Whole, too: as much as with the plain loss.
TEST(RowBlocks, TheLogitsGradientIsStoredOnceWhateverTheLossAdds) {
  const auto wide_tensors = [](const CrossEntropyOptions& loss, bool capped) {
    Block b;
    head_with(b, sizes_of_model(), loss, capped);
    CompileOptions options;
    options.sizes = rows(130);
    int wide = 0;
    for (const PlanTensor& t : compile(b.graph, b.request, options).plan.tensors) {
      const bool is_whole = t.decl.shape == Shape{Dim("M"), Dim(kVocabulary)};
      wide += is_whole && t.decl.kind == TensorKind::dense ? 1 : 0;
    }
    return wide;
  };
  EXPECT_EQ(wide_tensors({}, false), 2);  // logits and their gradient
  EXPECT_EQ(wide_tensors({.label_smoothing = 0.1}, false), 2);
  EXPECT_EQ(wide_tensors({.z_loss = 0.01}, false), 2);
  EXPECT_EQ(wide_tensors({.label_smoothing = 0.1, .z_loss = 0.01}, false), 2);
  EXPECT_EQ(wide_tensors({.label_smoothing = 0.1, .z_loss = 0.01}, true), 2);
}

// Sums lie in the caller's gradient from the start where one backward follows each forward.
TEST(RowBlocks, ASumNeedsNoMemoryOfItsOwnWhereTheGradientIsWrittenOver) {
  for (const bool overwrite : {false, true}) {
    Block b;
    llama_model(b, 1, false, sizes_of_model());
    const CompileOptions options = in_three_blocks(overwrite);
    const Plan plan = compile(b.graph, b.request, options).plan;
    ASSERT_EQ(plan.loops.size(), 1U);
    ASSERT_EQ(plan.loops[0].sums.size(), 1U);
    const PlanTensor& sum = plan.tensor(plan.loops[0].sums[0]);
    EXPECT_EQ(sum.decl.dtype, DType::f32);
    EXPECT_EQ(sum.decl.name == "d_head", overwrite);
    EXPECT_EQ(sum.role, overwrite ? TensorRole::output : TensorRole::saved);
  }
}

// The norm's weight and the loss's scale are factors of each block's product then.
TEST(RowBlocks, AGradientWhoseFactorsAreKnownEarlyIsDoneWithTheLoop) {
  for (const bool is_tied : {false, true}) {
    for (const bool is_early : {false, true}) {
      Block b;
      llama_model(b, 1, is_tied, sizes_of_model());
      b.request.seeds[0].is_early = is_early;
      const CompileOptions options = in_three_blocks(true);
      const Plan plan = compile(b.graph, b.request, options).plan;
      ASSERT_EQ(plan.loops.size(), 1U);
      ASSERT_EQ(plan.loops[0].sums.size(), 1U);
      int programs = 0;
      for (const PlanStep& step : plan.backward) {
        for (const StepTensor& t : step_tensors(step)) {
          const bool is_program = std::holds_alternative<Program>(step.work);
          programs += is_program && t.written && t.name == plan.loops[0].sums[0] ? 1 : 0;
        }
      }
      SCOPED_TRACE("tied " + std::to_string(is_tied) + ", early " + std::to_string(is_early));
      EXPECT_EQ(programs, is_early ? 0 : 1) << text(plan, options.sizes, options.rates);
    }
  }
}

// A sum that the forward adds to must not hold what the caller's gradient held.
TEST(RowBlocks, AGradientThatIsAddedToWaitsForTheBackward) {
  Block b;
  llama_model(b, 1, false, sizes_of_model());
  b.request.seeds[0].is_early = true;
  for (GradientRequest& g : b.request.gradients) g.accumulate = true;
  const CompileOptions options = in_three_blocks(true);
  const Plan plan = compile(b.graph, b.request, options).plan;
  ASSERT_EQ(plan.loops.size(), 1U);
  for (const PlanStep& step : plan.forward)
    for (const StepTensor& t : step_tensors(step)) EXPECT_NE(t.name, "d_head") << step.name;
}

TEST(RowBlocks, SumsAreInSinglePrecisionWhateverIsStored) {
  for (const DType storage : {DType::bf16, DType::f16}) {
    Block b;
    b.storage = storage;
    llama_model(b, 1, true, sizes_of_model());
    b.request.seeds[0].is_early = storage == DType::f16;
    for (GradientRequest& g : b.request.gradients) g.dtype = storage;
    CompileOptions options = in_three_blocks();
    options.storage = storage;
    const Plan plan = compile(b.graph, b.request, options).plan;
    ASSERT_EQ(plan.loops.size(), 1U);
    for (const std::string& sum : plan.loops[0].sums)
      EXPECT_EQ(plan.tensor(sum).decl.dtype, DType::f32) << sum;
  }
}

// A weight is read once a block; products and their flops are those of the plan without blocks.
TEST(RowBlocks, CostCountsEveryBlock) {
  Block b;
  biased_head(b, sizes_of_model());
  CompileOptions options;
  options.sizes = rows(130);
  const auto totals = [&](int64_t loss_rows) {
    options.loss_rows = loss_rows;
    const Plan plan = compile(b.graph, b.request, options).plan;
    StepCost sum;
    double head = 0;
    for (const auto* phase : {&plan.forward, &plan.backward}) {
      for (const PlanStep& step : *phase) {
        const StepCost cost = cost_of(step, plan, options.sizes, options.rates);
        sum.flops += cost.flops;
        sum.bytes += cost.bytes;
        if (step.name.find("product0") != std::string::npos) head = cost.bytes;
      }
    }
    return std::pair(sum, head);
  };
  const auto [whole, whole_head] = totals(0);
  const auto [blocks, blocks_head] = totals(64);
  EXPECT_DOUBLE_EQ(blocks.flops, whole.flops);
  const double weight = 4.0 * (sizes_of_model().hidden + 1) * kVocabulary;
  EXPECT_DOUBLE_EQ(blocks_head - whole_head, 2 * weight);  // three blocks rather than one
}

// Where the upstream gradient is a constant the whole backward could run early: what is wide
// decides.
TEST(RowBlocks, RandomGraphsInBlocksEqualThePlainGradient) {
  int in_blocks = 0;
  constexpr int kGraphs = tests::fewer_if_sanitized(200);
  for (uint64_t seed = 1; seed <= kGraphs; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    RandomGraph random(seed, 64 * static_cast<int64_t>(seed % 2) + 1 + static_cast<int64_t>(seed));
    Block& b = random.block;
    const bool has_loss = b.request.outputs[0].name == "loss";
    if (has_loss && seed % 2 == 0) b.request.seeds[0].cotangent = b.graph.constant(0.5);
    for (SeededOutput& s : b.request.seeds) s.is_early = seed % 3 == 0;
    CompileOptions options;
    options.sizes = random.sizes();
    options.loss_rows = 64;
    options.overwrite_saved = seed % 2 == 0;
    const Plan plan = compile(b.graph, b.request, options).plan;
    ASSERT_EQ(plan.loops.size() + plan.notes.size(), 1U);
    in_blocks += plan.loops.empty() ? 0 : 1;
    const Values inputs = random.inputs();
    PlanEvaluator evaluator(plan, options.sizes);
    evaluator.values = inputs;
    ASSERT_NO_THROW({
      evaluator.run(plan.forward);
      evaluator.forget_temporaries();
      evaluator.run(plan.backward);
    }) << text(plan, options.sizes, options.rates);
    for (const auto& [name, expected] : plain_values(b.graph, b.request, inputs, options.sizes)) {
      ASSERT_TRUE(evaluator.values.contains(name)) << name;
      EXPECT_LT(std::sqrt(squared_error(evaluator.values.at(name), expected)), 1e-9) << name;
    }
    if (HasFailure()) {
      ADD_FAILURE() << text(plan, options.sizes, options.rates);
      return;
    }
  }
  EXPECT_GT(in_blocks, 3 * kGraphs / 20);
}

// ---- what is not done in blocks ----

std::string why_whole(const Block& b, CompileOptions options) {
  options.sizes = rows(129);  // sequences of 3 in the blocks that have them
  const Plan plan = compile(b.graph, b.request, options).plan;
  EXPECT_TRUE(plan.loops.empty());
  expect_equal_in_blocks(b, plan, options.sizes, 6);
  return plan.notes.size() == 1 ? plan.notes[0] : testing::PrintToString(plan.notes);
}

// Each row has an upstream gradient of its own: the weight's gradient is a sum with it inside.
TEST(RowBlocks, AnUpstreamGradientOfEachRowIsWaitedFor) {
  Block b;
  const Value x = b.graph.input("x", {"M", 12});
  b.wants_gradient(x, "d_x");
  const Value targets = b.graph.table("targets", {"M", 1}, DType::i32);
  const Value logits = linear(x, b.parameter("head", {kVocabulary, 12}));
  b.seed(cross_entropy(logits, targets).rows, "loss_rows");
  CompileOptions options;
  options.loss_rows = 64;
  EXPECT_THAT(why_whole(b, options), HasSubstr("waits for the upstream gradient"));
}

TEST(RowBlocks, WithoutALossThereIsNothingToDoEarly) {
  Block b;
  llama_block(b);
  CompileOptions options;
  options.loss_rows = 64;
  EXPECT_THAT(why_whole(b, options),
              HasSubstr("every product of the backward waits for the upstream gradient"));
}

// Attention over the logits' rows has no result before all blocks are made.
TEST(RowBlocks, WhatACallReadsWholeIsMadeWhole) {
  Block b;
  biased_head(b, sizes_of_model());
  const Value logits = b.request.outputs[1].value;
  b.request.outputs.push_back(
      {"mixed", attention(logits, logits, logits,
                          {.heads = 1, .kv_heads = 1, .head_dim = kVocabulary, .sequence = "M"})});
  CompileOptions options;
  options.loss_rows = 64;
  EXPECT_THAT(why_whole(b, options), HasSubstr("attention reads it whole"));
}

// The baseline does not take the upstream gradient out of the logits' gradient.
TEST(RowBlocks, UnfusedPlansHaveNone) {
  Block b;
  llama_model(b, 1, true, sizes_of_model());
  CompileOptions options;
  options.loss_rows = 64;
  options.fuse = false;
  EXPECT_THAT(why_whole(b, options), HasSubstr("waits for the upstream gradient"));
}

TEST(RowBlocks, AutomaticBlocksBeginWhereTheRuleSays) {
  const auto loops = [](int64_t tokens, int64_t vocabulary, int64_t hidden,
                        Objective objective = Objective::memory,
                        int64_t loss_rows = kAutomaticLossRows) {
    Block b;
    const Value x = b.graph.input("x", {"M", hidden});
    b.wants_gradient(x, "d_x");
    const Value logits = linear(x, b.parameter("head", {vocabulary, hidden}));
    const Value targets = b.graph.table("targets", {"M", 1}, DType::i32);
    const Value loss = cross_entropy(logits, targets).mean;
    b.request.outputs = {{"loss", loss}};
    b.request.seeds = {{loss, b.graph.input("scale", {1, 1})}};
    CompileOptions options;
    options.sizes = {{"M", tokens}};
    options.loss_rows = loss_rows;
    options.objective = objective;
    options.rates = h200_rates();
    return compile(b.graph, b.request, options).plan;
  };
  const Plan small = loops(2048, 32768, 256);  // 256 MiB
  EXPECT_TRUE(small.loops.empty());
  EXPECT_THAT(small.notes.at(0), HasSubstr("[M, 32768] takes 268.4 MB, blocks begin above"));
  // Sums in fp32 are not added to more often than every 4096 rows on an H200.
  EXPECT_EQ(loops(16384, 32768, 256).loops.at(0).rows, 4096);
  EXPECT_EQ(loops(65536, 32768, 256).loops.at(0).rows, 8192);  // an eighth
  EXPECT_EQ(loops(6000, 32768, 256).loops.at(0).rows, 3008);   // half, in spans of 64 rows
  EXPECT_EQ(loops(6000, 32768, 256, Objective::speed).loops.at(0).rows, 4096);
  // Of a plan for numbers of rows that vary, the one at which it was compiled does not matter.
  for (const int64_t tokens : {6000, 8192})
    EXPECT_EQ(loops(tokens, 32768, 256, Objective::memory, -8192).loops.at(0).rows, 4096);
  EXPECT_TRUE(loops(4160, 32768, 256, Objective::memory, -8192).loops.empty());  // saves too little
  EXPECT_TRUE(loops(2048, 32768, 256, Objective::memory, -8192).loops.empty());
  EXPECT_EQ(loops(65536, 32768, 256, Objective::memory, -8192).loops.at(0).rows, 8192);
  const Plan deep = loops(2049, 32768, 4096);
  EXPECT_TRUE(deep.loops.empty());
  EXPECT_THAT(deep.notes.at(0), HasSubstr("their sums in fp32 take 536.9 MB"));
}

// ---- as text ----

TEST(RowBlocks, TextIsTheOneThatWasRead) {
  Block b;
  llama_model(b, 1, true,
              {.hidden = 256,
               .heads = 4,
               .kv_heads = 2,
               .head_dim = 64,
               .mlp = 688,
               .vocab = 32768,
               .sequence = 512});
  CompileOptions options;
  options.sizes = {{"M", 4096}};
  options.rates = cpu_rates();
  options.loss_rows = kAutomaticLossRows;
  options.overwrite_saved = true;
  const std::string now =
      text(compile(b.graph, b.request, options).plan, options.sizes, options.rates);
  expect_golden("plan/golden/row_blocks_4096x256_f32_cpu_memory.txt", now);
}

}  // namespace
}  // namespace coda
