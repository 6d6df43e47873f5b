// SPDX-License-Identifier: Apache-2.0
// Plans whose products are in 8 bits, run in float64 without rounding: scales and inverses cancel,
// so every result is the graph's, for models, for blocks of rows and for random graphs. Which
// products are taken, how their operands lie, and what scales learn is looked at one by one.
#include "plan/after/eight_bits.h"
#include "base/seeds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "coda/eight_bits.h"
#include "plan/after/parameter_copies.h"
#include "plan/plain_graph.h"
#include "plan/plan_evaluator.h"
#include "plan/random_graphs.h"
#include "plan/search/search.h"
#include "program/step_table.h"

namespace coda {
namespace eight_bits {
namespace {

using testing::HasSubstr;

// Of every segment of every product: whether its operands are in 8 bits.
std::vector<bool> products_of(const Plan& plan) {
  std::vector<bool> all;
  for (const auto* phase : {&plan.forward, &plan.backward}) {
    for (const PlanStep& step : *phase) {
      const auto* program = std::get_if<Program>(&step.work);
      if (program == nullptr) continue;
      for (const Step& s : program->steps) {
        for (const GemmSegment& g : s.segments()) {
          const bool is_eight = size_of(program->tensors[g.a].dtype) == 1;
          EXPECT_EQ(size_of(program->tensors[g.b].dtype) == 1, is_eight) << step.name;
          // The contraction lies along the rows of both.
          EXPECT_TRUE(!is_eight || (!g.transpose_a && g.transpose_b)) << step.name;
          all.push_back(is_eight);
        }
      }
    }
  }
  return all;
}

// Of a product of the forward both operands are values; of one of the backward one is a gradient,
// also where that of the logits is multiplied in the forward. Values that the backward recomputes
// are values.
void expect_types(const Plan& plan) {
  for (const auto* phase : {&plan.forward, &plan.backward}) {
    for (const PlanStep& step : *phase) {
      const auto* program = std::get_if<Program>(&step.work);
      if (program == nullptr) continue;
      const bool is_backward = step.name.find("gradient") != std::string::npos;
      for (const Step& s : program->steps) {
        for (const GemmSegment& g : s.segments()) {
          const DType a = program->tensors[g.a].dtype;
          const DType b = program->tensors[g.b].dtype;
          if (size_of(a) != 1) continue;
          EXPECT_EQ((a == DType::e5m2) + (b == DType::e5m2), is_backward ? 1 : 0) << step.name;
        }
      }
    }
  }
}

// A loop over row blocks has memory for one block: its steps run one behind the other.
void expect_whole_loops(const Plan& plan) {
  for (const auto* phase : {&plan.forward, &plan.backward}) {
    std::vector<int> begun;
    for (const PlanStep& step : *phase) {
      if (step.loop < 0 || (!begun.empty() && begun.back() == step.loop)) {
        if (step.loop < 0) begun.push_back(-1);
        continue;
      }
      EXPECT_EQ(std::count(begun.begin(), begun.end(), step.loop), 0) << step.name;
      begun.push_back(step.loop);
    }
  }
}

// Scales that are powers of two, so that their inverses are exact, and not one.
void give_scales(PlanEvaluator& evaluator, size_t scales) {
  const auto columns = scales * static_cast<size_t>(kScaleColumns);
  std::vector<double> scale(columns);
  std::vector<double> inverse(columns);
  for (size_t i = 0; i < columns; ++i) {
    scale[i] = std::ldexp(1, static_cast<int>(i / kScaleColumns % 7) - 3);
    inverse[i] = 1 / scale[i];
  }
  evaluator.values[kScales] = scale;
  evaluator.values[kInverses] = inverse;
  evaluator.values[kMagnitudes] = std::vector<double>(columns, 0);
  evaluator.values[kParameterMagnitudes] = evaluator.values[kMagnitudes];
}

void expect_same_results(const Block& b, const Compiled& compiled, const DimValues& sizes,
                         const Values& inputs) {
  PlanEvaluator evaluator(compiled.plan, sizes);
  evaluator.values = inputs;
  if (!compiled.first_scales.empty()) give_scales(evaluator, compiled.first_scales.size());
  for (const ParameterCopy& copy : compiled.parameter_copies)
    evaluator.run({{.name = "", .role = StepRole::tile, .work = copy.program, .reasons = {}}});
  evaluator.run(compiled.plan.forward);
  evaluator.forget_temporaries();
  evaluator.run(compiled.plan.backward);
  for (const auto& [name, expected] : plain_values(b.graph, b.request, inputs, sizes)) {
    ASSERT_TRUE(evaluator.values.contains(name)) << name;
    EXPECT_LT(std::sqrt(squared_error(evaluator.values.at(name), expected)), 1e-9) << name;
  }
  for (size_t i = 0; i < compiled.first_scales.size(); ++i) {
    const size_t at = i * kScaleColumns;
    EXPECT_GT(std::max(evaluator.values.at(kMagnitudes)[at],
                       evaluator.values.at(kParameterMagnitudes)[at]),
              0)
        << "scale " << i;
  }
}

constexpr int64_t kRows = 80;  // a block of 64 and one of 16

const LlamaSizes kNarrow{.hidden = 32,
                         .heads = 2,
                         .kv_heads = 1,
                         .head_dim = 16,
                         .mlp = 48,
                         .vocab = 96,
                         .sequence = Dim("T")};
Compiled compiled_model(Block& b, bool llama, EightBits eight_bits, int64_t loss_rows,
                        const LlamaSizes& s = kNarrow, bool is_early = false,
                        bool copies_are_given = false, const std::vector<std::string>& except = {},
                        const std::vector<bool>& fold = {}) {
  b.storage = DType::bf16;
  if (llama) {
    llama_model(b, 2, true, s);
  } else {
    gpt2_model(b, 2, s);
  }
  b.request.seeds[0].is_early = is_early;
  CompileOptions options;
  options.storage = DType::bf16;
  options.sizes = {{"M", kRows}, {"T", kRows}};
  options.loss_rows = loss_rows;
  options.overwrite_saved = true;
  options.eight_bits = eight_bits;
  options.copies_are_given = copies_are_given;
  options.eight_bits_except = except;
  return compile(b.graph, b.request, options, {.fold = fold});
}

TEST(EightBitPlan, ModelsComputeWhatTheirGraphsMean) {
  for (const bool llama : {true, false}) {
    for (const auto& [loss_rows, is_early] : {std::pair(0, false), {64, false}, {64, true}}) {
      for (const auto& [which, left, why] :
           {std::tuple{EightBits::fp8, 1, "1 over the rows of a loss's logits (the first: '"},
            std::tuple{EightBits::fp8_kept, 1, "values that are saved for the backward's"}}) {
        SCOPED_TRACE((llama ? "llama, " : "gpt2, ") + std::to_string(loss_rows) + " rows, " +
                     std::to_string(left) + " left, early " + std::to_string(is_early));
        Block b;
        const Compiled compiled = compiled_model(b, llama, which, loss_rows, kNarrow, is_early);
        const DimValues sizes{{"M", kRows}, {"T", kRows}};
        const std::vector<bool> products = products_of(compiled.plan);
        const auto others = std::count(products.begin(), products.end(), false);
        EXPECT_GT(std::ssize(products), 12);
        EXPECT_EQ(others, left);
        EXPECT_THAT(compiled.plan.notes.back(), HasSubstr(why));
        expect_types(compiled.plan);
        expect_whole_loops(compiled.plan);
        expect_same_results(b, compiled, sizes, random_inputs(b.graph, sizes, 1));
      }
    }
  }
}

// Whether a product of the program reads one of these tensors or a view of it, or the program
// stores one.
bool is_of(const Plan& plan, const Program& program, const std::set<std::string>& tensors) {
  const auto has = [&](int t) {
    const PlanTensor& tensor = plan.tensor(program.tensors[t].name);
    return tensors.contains(tensor.view_of.empty() ? tensor.decl.name : tensor.view_of);
  };
  return std::ranges::any_of(program.steps, [&](const Step& s) {
    return (program::is_tile_store(s) && has(s.tensor())) ||
           std::ranges::any_of(s.segments(),
                               [&](const GemmSegment& g) { return has(g.a) || has(g.b); });
  });
}

// All three products of each of them stay as they are, and no others but the one that the recipe
// leaves; the norm's weight that is folded into a layer's does not change that.
TEST(EightBitPlan, ProductsOfExceptedParametersStayInSixteenBits) {
  for (const auto& [llama, loss_rows] : {std::pair(true, 0), {true, 64}, {false, 0}, {false, 64}}) {
    for (const auto& [given, fold] : std::initializer_list<std::pair<bool, std::vector<bool>>>{
             {false, {}}, {true, {}}, {false, {true}}}) {
      SCOPED_TRACE((llama ? "llama, " : "gpt2, ") + std::to_string(loss_rows) + " rows");
      if (!llama && !fold.empty()) continue;  // a mean is subtracted behind the factor
      Block b;
      const std::vector<std::string> except = llama ? std::vector<std::string>{"l0.*", "*1.down"}
                                                    : std::vector<std::string>{"h0.*", "*1.fc.w"};
      const Compiled compiled =
          compiled_model(b, llama, EightBits::fp8, loss_rows, kNarrow, false, given, except, fold);
      std::set<std::string> excepted;
      for (const GradientRequest& gradient : b.request.gradients) {
        const std::string& name = b.graph.node(gradient.input.id).name;
        if (!name.starts_with(llama ? "l0." : "h0.") && name != (llama ? "l1.down" : "h1.fc.w"))
          continue;
        excepted.insert(name);
        excepted.insert(gradient.name);
      }
      int folded = 0;
      for (const PlanTensor& t : compiled.plan.tensors) {
        if (!t.decl.name.starts_with("l0.") || !t.decl.name.ends_with("_folded")) continue;
        ++folded;
        excepted.insert(t.decl.name);
      }
      EXPECT_EQ(folded, fold.empty() ? 0 : 3);
      int of_excepted = 0, others_in_16_bits = 0, others = 0;
      for (const auto* phase : {&compiled.plan.forward, &compiled.plan.backward}) {
        for (const PlanStep& step : *phase) {
          const auto* program = std::get_if<Program>(&step.work);
          if (program == nullptr || !program::has_product(*program)) continue;
          const bool is_excepted = is_of(compiled.plan, *program, excepted);
          for (const Step& s : program->steps) {
            for (const GemmSegment& g : s.segments()) {
              const bool is_eight = size_of(program->tensors[g.a].dtype) == 1;
              EXPECT_FALSE(is_excepted && is_eight) << step.name;
              of_excepted += is_excepted;
              others += !is_excepted;
              others_in_16_bits += !is_excepted && !is_eight;
            }
          }
        }
      }
      EXPECT_GE(of_excepted, 12);
      EXPECT_GE(others, 12);
      EXPECT_EQ(others_in_16_bits, 1);
      EXPECT_THAT(compiled.plan.notes,
                  testing::Contains(HasSubstr("parameters that are excepted")));
      const DimValues sizes{{"M", kRows}, {"T", kRows}};
      expect_same_results(b, compiled, sizes, random_inputs(b.graph, sizes, 1));
    }
  }
}

TEST(EightBitPlan, AnExceptionMustBeAParametersName) {
  const auto refusal = [](EightBits which, const std::string& name) {
    Block b;
    try {
      compiled_model(b, true, which, 0, kNarrow, false, false, {name});
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(refusal(EightBits::fp8, "l7.*"), HasSubstr("no parameter has such a name"));
  EXPECT_THAT(refusal(EightBits::none, "l0.*"), HasSubstr("no other product is in 8"));
}

// Of which it loads tiles.
std::vector<std::string> loaded_by(const Program& program) {
  std::vector<std::string> loaded;
  for (const Step& s : program.steps)
    if (program::is_tile_load(s)) loaded.push_back(program.tensors[s.tensor()].name);
  return loaded;
}

// Parameters, and views of them, of which a step loads tiles, and of nothing else.
std::set<std::string> copied_alone(const Plan& plan) {
  std::set<std::string> names;
  for (const auto* phase : {&plan.forward, &plan.backward}) {
    for (const PlanStep& step : *phase) {
      const auto* program = std::get_if<Program>(&step.work);
      if (program == nullptr || step.loop >= 0) continue;
      const std::vector<std::string> loaded = loaded_by(*program);
      if (loaded.size() == 1 && plan.tensor(loaded[0]).role == TensorRole::parameter)
        names.insert(loaded[0]);
    }
  }
  return names;
}

// The plan then has no program that only copies a parameter, reads the copies, and computes the
// same; whoever runs these programs before it makes them, and raises other magnitudes than a run.
TEST(EightBitPlan, CopiesOfParametersMayBeGiven) {
  constexpr auto kUsual = EightBits::fp8;
  for (const auto& [llama, loss_rows, which] : {std::tuple{true, 0, kUsual},
                                                {true, 64, kUsual},
                                                {true, 0, EightBits::fp8_kept},
                                                {false, 0, kUsual}}) {
    SCOPED_TRACE((llama ? "llama, " : "gpt2, ") + std::to_string(loss_rows) + " rows, " +
                 std::to_string(static_cast<int>(which)));
    Block own;
    const std::set<std::string> copied =
        copied_alone(compiled_model(own, llama, which, loss_rows).plan);
    Block b;
    const Compiled compiled = compiled_model(b, llama, which, loss_rows, kNarrow, false, true);
    std::set<std::string> given;
    for (const ParameterCopy& copy : compiled.parameter_copies) {
      const PlanTensor& loaded = compiled.plan.tensor(loaded_by(copy.program).at(0));
      EXPECT_TRUE(given.insert(loaded.decl.name).second) << loaded.decl.name;
      EXPECT_EQ(copy.parameter, loaded.view_of.empty() ? loaded.decl.name : loaded.view_of);
      EXPECT_EQ(loaded.role, TensorRole::parameter);
      for (const TensorDecl& decl : copy.program.tensors)
        EXPECT_NE(compiled.plan.tensor(decl.name).view_of, kMagnitudes) << decl.name;
    }
    EXPECT_EQ(given, copied);
    EXPECT_GT(given.size(), 6U);
    EXPECT_TRUE(copied_alone(compiled.plan).empty());
    const DimValues sizes{{"M", kRows}, {"T", kRows}};
    expect_same_results(b, compiled, sizes, random_inputs(b.graph, sizes, 1));
  }
}

// What a call made is copied by the program without a product that loads it (the embedding's, for
// its norm; the values' gradient, beside RoPE's), and by one of its own where none does.
TEST(EightBitPlan, ProgramsThatLoadWhatACallMadeCopyIt) {
  Block b;
  const Compiled compiled = compiled_model(b, true, EightBits::fp8, 0, kNarrow, false, true);
  std::set<std::string> by_themselves;
  for (const auto* phase : {&compiled.plan.forward, &compiled.plan.backward})
    for (const PlanStep& step : *phase)
      if (step.name.starts_with("quantise ")) by_themselves.insert(step.name.substr(9));
  EXPECT_THAT(by_themselves, testing::ElementsAre("l0.attention", "l1.attention"));
}

// Columns of a parameter are copied for themselves, and the copy is the parameter's.
TEST(EightBitPlan, ProgramsOfColumnsOfAParameterAreTaken) {
  Plan plan;
  const Program both = parse_program(
      "program all {\n  tensors(w, w.a, a, b)\n  store(a:e4m3, tile(w.a[64, 32]:bf16))\n"
      "  store(b:e4m3, tile(w[64, 96]:bf16))\n}");
  plan.tensors.push_back({.decl = both.tensors[0], .role = TensorRole::parameter});
  plan.tensors.push_back({.decl = both.tensors[1], .role = TensorRole::parameter, .view_of = "w"});
  for (const std::string from : {"w.a", "w"}) {
    const std::string stored = from == "w" ? "b" : "a";
    const std::string shape = from == "w" ? "[64, 96]" : "[64, 32]";
    const Program program =
        parse_program("program of_" + stored + " {\n  tensors(" + from + ", " + stored +
                      ")\n  store(" + stored + ":e4m3, tile(" + from + shape + ":bf16))\n}");
    plan.tensors.push_back({.decl = program.tensors[1], .role = TensorRole::temporary});
    plan.forward.push_back(
        {.name = stored, .role = StepRole::tile, .work = program, .reasons = {}});
  }
  const std::vector<ParameterCopy> taken = take_parameter_copies(plan);
  ASSERT_EQ(taken.size(), 2U);
  for (const ParameterCopy& copy : taken) EXPECT_EQ(copy.parameter, "w");
  EXPECT_TRUE(plan.forward.empty());
  EXPECT_EQ(plan.tensor("a").role, TensorRole::input);
  EXPECT_EQ(plan.tensor("w.a").role, TensorRole::parameter);
}

// Whoever updates a parameter does so once.
TEST(EightBitPlan, OneProgramOfAParameterIsTaken) {
  Plan plan;
  const auto add = [&](const std::string& name, const std::string& stored, TensorRole role,
                       const std::string& store) {
    const Program program =
        parse_program("program " + name + " {\n  tensors(w, " + stored + ")\n  " + store + "\n}");
    plan.tensors.push_back({.decl = program.tensors[1], .role = role});
    plan.forward.push_back({.name = name, .role = StepRole::tile, .work = program, .reasons = {}});
  };
  add("a", "rows", TensorRole::temporary, "store(rows:e4m3, tile(w[64, 96]:bf16))");
  add("b", "columns", TensorRole::saved, "store_transposed(columns:e4m3, tile(w[64, 96]:bf16))");
  add("c", "y", TensorRole::output, "store(y, tile(w[64, 96]:bf16))");
  plan.tensors.push_back(
      {.decl = std::get<Program>(plan.forward[0].work).tensors[0], .role = TensorRole::parameter});
  const std::vector<ParameterCopy> taken = take_parameter_copies(plan);
  ASSERT_EQ(taken.size(), 1U);
  EXPECT_EQ(taken[0].parameter, "w");
  EXPECT_EQ(taken[0].program.name, "a");
  EXPECT_EQ(plan.tensor("rows").role, TensorRole::input);
  EXPECT_EQ(plan.tensor("columns").role, TensorRole::saved);
  ASSERT_EQ(plan.forward.size(), 2U);
  EXPECT_EQ(plan.forward[0].name, "b");
}

// Of a LLaMA those are gate and up, for SwiGLU's gradient. The residual stream, with which the
// forward goes on, attention's tensors, which a call reads, and logits, of which the backward takes
// the exponential, stay in 16 bits.
TEST(EightBitPlan, ValuesForTheBackwardsEpiloguesAloneAreSavedInEightBits) {
  const auto saved = [](EightBits which) {
    Block b;
    const Compiled compiled = compiled_model(b, true, which, 0);
    std::map<std::string, DType> types;
    for (const PlanTensor& t : compiled.plan.tensors)
      if (t.role == TensorRole::saved && t.view_of.empty()) types[t.decl.name] = t.decl.dtype;
    return types;
  };
  std::map<std::string, DType> expected = saved(EightBits::fp8);
  for (const std::string name : {"l0.gate_out", "l0.up_out", "l1.gate_out", "l1.up_out"}) {
    EXPECT_EQ(expected.erase(name), 1U) << name;
    expected[name + "_e4m3"] = DType::e4m3;
  }
  EXPECT_EQ(saved(EightBits::fp8_kept), expected);
}

// The GEMM of the logits sums over 40, so it stays in 16 bits. The GEMMs of their gradient are in
// 8 bits, so the first 8-bit read of the head's weight is in the middle of the loop over blocks.
TEST(EightBitPlan, ACopyOfAWholeTensorIsMadeAheadOfTheLoopThatReadsIt) {
  Block b;
  b.storage = DType::bf16;
  llama_model(b, 2, false,
              {.hidden = 40,
               .heads = 2,
               .kv_heads = 1,
               .head_dim = 16,
               .mlp = 48,
               .vocab = 96,
               .sequence = Dim("T")});
  const DimValues sizes{{"M", kRows}, {"T", kRows}};
  CompileOptions options;
  options.storage = DType::bf16;
  options.sizes = sizes;
  options.loss_rows = 64;
  options.eight_bits = EightBits::fp8;
  const Compiled compiled = compile(b.graph, b.request, options);
  expect_whole_loops(compiled.plan);
  expect_same_results(b, compiled, sizes, random_inputs(b.graph, sizes, 1));
}

// A sum over 40 is no multiple of 16: the product stays, and the note names it.
TEST(EightBitPlan, AProductThatTensorCoresDoNotTakeStaysAsItIs) {
  Block b;
  b.storage = DType::bf16;
  const Value x = b.graph.input("x", {"M", 40}, DType::bf16);
  const Value y = linear(x, b.graph.parameter("w", {32, 40}, DType::bf16));
  b.request.outputs = {{"y", y}};
  CompileOptions options;
  options.storage = DType::bf16;
  options.sizes = {{"M", 16}};
  options.eight_bits = EightBits::fp8;
  const Compiled compiled = compile(b.graph, b.request, options);
  EXPECT_EQ(products_of(compiled.plan), std::vector<bool>{false});
  EXPECT_TRUE(compiled.first_scales.empty());
  EXPECT_THAT(
      compiled.plan.notes.back(),
      HasSubstr("0 products are in 8 bits; those of 1 steps stay as they were: 1 of sums over "
                "40, no multiple of 16 (the first: 'x' x 'w')"));
}

TEST(EightBitPlan, RandomGraphsComputeWhatTheyMean) {
  int taken = 0;
  constexpr int kGraphs = tests::fewer_if_sanitized(150);
  for (uint64_t seed = 1; seed <= kGraphs; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    RandomGraph random(seed, 64);
    CompileOptions options;
    options.storage = DType::bf16;
    options.sizes = random.sizes();
    options.overwrite_saved = seed % 2 == 0;
    options.eight_bits = seed % 3 == 0 ? EightBits::fp8_kept : EightBits::fp8;
    const Compiled compiled = compile(random.block.graph, random.block.request, options);
    const std::vector<bool> products = products_of(compiled.plan);
    taken += static_cast<int>(std::count(products.begin(), products.end(), true));
    PlanEvaluator evaluator(compiled.plan, options.sizes);
    const Values inputs = random.inputs();
    evaluator.values = inputs;
    if (!compiled.first_scales.empty()) give_scales(evaluator, compiled.first_scales.size());
    evaluator.run(compiled.plan.forward);
    evaluator.forget_temporaries();
    evaluator.run(compiled.plan.backward);
    for (const auto& [name, expected] :
         plain_values(random.block.graph, random.block.request, inputs, options.sizes)) {
      ASSERT_TRUE(evaluator.values.contains(name)) << name;
      EXPECT_LT(std::sqrt(squared_error(evaluator.values.at(name), expected)), 1e-9) << name;
    }
  }
  EXPECT_GT(taken, 4 * kGraphs / 3);
}

}  // namespace
}  // namespace eight_bits
}  // namespace coda
