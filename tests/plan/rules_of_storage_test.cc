// SPDX-License-Identifier: Apache-2.0
// Which choices the compiler never makes, for which norm and storage type (docs/numerics.md), and
// norms that it plans although their statistics are not one partial.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "coda/error.h"
#include "plan/plan_means.h"
#include "plan/search/second_norm.h"

namespace coda {
namespace {

using testing::HasSubstr;

// The letters of the norms and of their rows in the plan that was chosen, and those of the norms in
// all plans that the search looked at.
struct Letters {
  std::string norms;
  std::string rows;
  std::string tried;
};

Letters letters_of(const std::function<void(Block&)>& build, DType storage, Objective objective) {
  Block b;
  b.storage = storage;
  build(b);
  CompileOptions options;
  options.sizes = {{"M", 6}};
  options.storage = storage;
  options.objective = objective;
  Letters letters;
  for (const Alternative& a : compile(b.graph, b.request, options).alternatives) {
    const size_t space = a.choice.find(' ');
    letters.tried += a.choice.substr(0, space);
    if (!a.chosen) continue;
    letters.norms += a.choice.substr(0, space);
    letters.rows += a.choice.substr(space + 1, a.choice.find(' ', space + 1) - space - 1);
  }
  return letters;
}

const std::vector<std::function<void(Block&)>>& stored_blocks() {
  static const std::vector<std::function<void(Block&)>> all{
      [](Block& b) { llama_block(b); },    [](Block& b) { llama_model(b, 2, true); },
      [](Block& b) { gpt2_model(b, 2); },  [](Block& b) { parallel_block(b); },
      [](Block& b) { sandwich_block(b); },
  };
  return all;
}

TEST(RulesOfStorage, Fp16HasNeitherScaledGradientsNorWeightedActivations) {
  for (const auto& build : stored_blocks()) {
    for (const Objective objective : {Objective::memory, Objective::speed}) {
      const Letters letters = letters_of(build, DType::f16, objective);
      EXPECT_EQ(letters.norms.find('h'), std::string::npos) << letters.norms;
      EXPECT_EQ(letters.rows.find('d'), std::string::npos) << letters.rows;
      EXPECT_FALSE(letters.norms.empty());
    }
  }
}

// The gradient of an fp32 residual: the caller gets it in fp32, and the product before reads it in
// 16 bits, for which there are tensor cores.
TEST(RulesOfStorage, NoProductReadsAGradientInFp32) {
  const auto weight = [](Graph& graph, const char* name) {
    return graph.input(name, {64, 64}, DType::bf16, InputKind::parameter);
  };
  Graph graph;
  const Value x = graph.input("x", {"M", 64}, DType::bf16);
  const Value wide = graph.input("wide", {"M", 64});
  const Value sum = linear(x, weight(graph, "w")) + wide;
  const Value y = linear(sum * rsqrt(row_mean(sum * sum) + 1e-6), weight(graph, "v"));
  const Value upstream = graph.input("upstream", {"M", 64}, DType::bf16);
  const CompileRequest request{
      {{"y", y}}, {{y, upstream}}, {{x, "to_x", DType::bf16}, {wide, "to_wide", DType::f32}}};
  CompileOptions options;
  options.sizes = {{"M", 6}};
  options.storage = DType::bf16;
  const Plan plan = compile(graph, request, options).plan;
  EXPECT_EQ(plan.tensor("to_wide").decl.dtype, DType::f32);
  int products = 0;
  for (const PlanStep& step : plan.backward) {
    const auto* program = std::get_if<Program>(&step.work);
    for (size_t i = 0; program != nullptr && i < program->steps.size(); ++i) {
      if (program->steps[i].kind() != StepKind::gemm) continue;
      for (const GemmSegment& segment : program->steps[i].segments()) {
        EXPECT_EQ(program->tensors[static_cast<size_t>(segment.a)].dtype, DType::bf16);
        ++products;
      }
    }
  }
  EXPECT_EQ(products, 2);
}

TEST(RulesOfStorage, ANormThatSubtractsAMeanIsNeverAWeightedActivation) {
  const auto gpt2 = [](Block& b) { gpt2_model(b, 2); };
  for (const Objective objective : {Objective::memory, Objective::speed}) {
    for (const DType storage : {DType::bf16, DType::f16, DType::f32}) {
      EXPECT_EQ(letters_of(gpt2, storage, objective).norms.find('h'), std::string::npos);
    }
    // Where accumulators are no wider than storage, it is applied before its product.
    EXPECT_EQ(letters_of(gpt2, DType::f32, objective).norms, "nnnnn");
  }
}

// The search has no choice for a norm without a weight. In fp32 the GEMM reads the norm's result;
// in 16 bits the GEMM reads the norm's input.
TEST(RulesOfStorage, ANormThatSubtractsAMeanAndHasNoWeightIsAppliedFirstInFp32) {
  for (const DType storage : {DType::f32, DType::bf16}) {
    Block b;
    b.storage = storage;
    const Value x = b.graph.input("x", {"M", 8}, storage);
    const Value variance = row_m2(x) * b.graph.reciprocal_dim(8);
    const Value h = (x - row_mean(x)) * rsqrt(variance + 1e-5);
    b.seed(linear(h, b.parameter("w", {8, 8})), "y");
    CompileOptions options;
    options.sizes = {{"M", 6}};
    options.storage = storage;
    const Plan plan = compile(b.graph, b.request, options).plan;
    std::string read;
    for (const PlanStep& step : plan.forward) {
      const auto* program = std::get_if<Program>(&step.work);
      for (size_t i = 0; program != nullptr && i < program->steps.size(); ++i) {
        if (program->steps[i].kind() != StepKind::gemm) continue;
        read = program->tensors[static_cast<size_t>(program->steps[i].segments()[0].a)].name;
      }
    }
    EXPECT_EQ(read == "x", storage == DType::bf16) << read;
  }
}

// fp32 cannot represent 1 / 12 exactly, so a multiplication by 1 / 12 would shift the means of all
// rows in the same direction. 1 / 8 is exact.
TEST(RulesOfStorage, AMeanIsASumDividedByTheNumberOfColumns) {
  for (const int64_t width : {12, 8}) {
    for (const bool is_of_heads : {false, true}) {
      Block b;
      const Value x = b.graph.input("x", {"M", is_of_heads ? 3 * width : width});
      b.request.outputs.push_back(
          {"mean",
           is_of_heads ? group_sum(x, width) * (1.0 / static_cast<double>(width)) : row_mean(x)});
      CompileOptions options;
      options.sizes = {{"M", 6}};
      std::set<double> divisors;
      for (const PlanStep& step : compile(b.graph, b.request, options).plan.forward) {
        const auto* program = std::get_if<Program>(&step.work);
        if (program == nullptr) continue;
        for (const Step& s : program->steps) {
          if (s.kind() != StepKind::elementwise || s.op() != Elementwise::div) continue;
          divisors.insert(program->steps[static_cast<size_t>(s.operands[1])].number());
        }
      }
      EXPECT_EQ(divisors, width == 12 ? std::set<double>{12} : std::set<double>{});
    }
  }
}

// A second norm takes out the rounding of h, which is a scale of its row, and not that of W ⊙ w. A
// residual sum between the two norms makes it a fold like others.
TEST(RulesOfStorage, AValueWithASecondNormIsNotFoldedIn16Bits) {
  const auto sandwich = [](Block& b) { sandwich_block(b); };
  const auto llama = [](Block& b) { llama_model(b, 2, false); };
  for (const Objective objective : {Objective::memory, Objective::speed}) {
    EXPECT_EQ(letters_of(sandwich, DType::bf16, objective).tried.find('F'), std::string::npos);
    EXPECT_EQ(letters_of(sandwich, DType::f16, objective).norms, "n");
    EXPECT_THAT(letters_of(sandwich, DType::f32, objective).tried, HasSubstr("F"));
    EXPECT_THAT(letters_of(llama, DType::bf16, objective).tried, HasSubstr("F"));
    // Of these tiny layers a fold costs more in launches than it saves in bytes.
    EXPECT_EQ(letters_of(llama, DType::f16, objective).norms, "FnnnF");
  }
}

// A norm of each head is a second norm too; one behind a sum with another tensor is not.
TEST(RulesOfStorage, NormsOfHeadsNormAgainAndNormsOfSumsDoNot) {
  enum class Second { none, of_heads, of_rows, of_a_sum };
  const auto is_normed_twice = [](Second second) {
    Block b;
    const Value x = b.graph.input("x", {"M", 8});
    const Value w = b.parameter("n.w", {1, 8});
    const Value p = linear(rms_norm(x, w, 1e-5), b.parameter("w", {8, 8}));
    if (second == Second::of_heads) rsqrt(group_sum(p * p, 4) + 1e-3);
    if (second == Second::of_rows) rms_reciprocal(silu(p), 1e-5);
    if (second == Second::of_a_sum) rms_reciprocal(p + x, 1e-5);
    return has_second_norm(b.graph, {w.id}) == std::vector<bool>{true};
  };
  EXPECT_FALSE(is_normed_twice(Second::none));
  EXPECT_TRUE(is_normed_twice(Second::of_heads));
  EXPECT_TRUE(is_normed_twice(Second::of_rows));
  EXPECT_FALSE(is_normed_twice(Second::of_a_sum));
}

// ---- graphs whose reductions need more than a partial
// -----------------------------------------------

const DimValues kStoredSizes{{"M", 5}, {"N", 6}};

void expect_planned(Block& b) {
  for (const bool fuse : {true, false}) {
    CompileOptions options;
    options.sizes = kStoredSizes;
    options.fuse = fuse;
    const Plan plan = compile(b.graph, b.request, options).plan;
    expect_plan_means(b, plan, kStoredSizes, random_inputs(b.graph, kStoredSizes, 4));
  }
}

TEST(RulesOfStorage, NormsOfEachHeadArePlanned) {
  Block b;
  const Value x = b.graph.input("x", {"M", 8});
  b.wants_gradient(x, "d_x");
  const Value p = linear(x, b.parameter("w", {12, 8}));
  const Value r = rsqrt(group_sum(p * p, 4) * 0.25 + 1e-3);
  b.seed(p * group_repeat(r, 4) * b.parameter("n", {1, 12}), "out");
  expect_planned(b);
}

// A size that gets its number when the plan is run.
TEST(RulesOfStorage, NormsOverASymbolicWidthArePlanned) {
  for (const bool centred : {false, true}) {
    Block b;
    const Value x = b.graph.input("x", {"M", "N"});
    b.wants_gradient(x, "d_x");
    const Value w = b.parameter("n.w", {1, "N"});
    const Value normal =
        centred ? layer_norm(x, w, b.parameter("n.b", {1, "N"}), 1e-5) : rms_norm(x, w, 1e-5);
    b.seed(linear(normal, b.parameter("w", {8, "N"})) + row_mean(x), "out");
    expect_planned(b);
  }
}

// Squares about the mean of a value that lies in its tile by pairs.
TEST(RulesOfStorage, LayerNormBehindARotationIsPlanned) {
  for (const bool half : {false, true}) {
    Block b;
    const Value x = b.graph.input("x", {"M", 8});
    b.wants_gradient(x, "d_x");
    const Value p = linear(x, b.parameter("w", {8, 8}));
    const RopeTables tables{b.graph.table("cos", {9, 2}), b.graph.table("sin", {9, 2}),
                            b.graph.table("position", {"M", 1}, DType::i32)};
    const Value turned = rope(p, tables, 2, 4, half) + x;
    const Value normal =
        layer_norm(turned, b.parameter("n.w", {1, 8}), b.parameter("n.b", {1, 8}), 1e-5);
    b.seed(linear(normal, b.parameter("o", {8, 8})), "out");
    expect_planned(b);
  }
}

}  // namespace
}  // namespace coda
