// SPDX-License-Identifier: Apache-2.0
// What a model of many equal layers must not depend on: its depth. The programs of a middle layer
// are the same in every layer, each layer adds as many bytes as the one before, no program reads
// more tensors in a deeper model, and the search compares no more plans, however the branches are
// joined to the residual stream.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "plan/deep_models.h"
#include "plan/plain_graph.h"
#include "plan/plan_evaluator.h"

namespace coda {
namespace {

struct Case {
  std::string name;
  Residual kind;
  Objective objective;
  bool trains;
};

std::vector<Case> cases() {
  const std::vector<std::pair<std::string, Residual>> kinds{{"pre_norm", Residual::pre_norm},
                                                            {"sandwich", Residual::sandwich},
                                                            {"post_norm", Residual::post_norm},
                                                            {"parallel", Residual::parallel}};
  std::vector<Case> all;
  for (const auto& [name, kind] : kinds) {
    all.push_back({name + "_memory", kind, Objective::memory, true});
    all.push_back({name + "_speed", kind, Objective::speed, true});
    all.push_back({name + "_forward", kind, Objective::speed, false});
  }
  return all;
}

const LlamaSizes kSizes{.hidden = 1024,
                        .heads = 16,
                        .kv_heads = 4,
                        .head_dim = 64,
                        .mlp = 2816,
                        .vocab = 32768,
                        .sequence = 1024};

struct Deep {
  DimValues sizes{{"M", 8192}};
  Plan plan;
  size_t tried = 0;  // plans that the search compared
};

Deep deep(const Case& c, int layers) {
  Deep made;
  Block b;
  b.storage = DType::bf16;
  deep_model(b, c.kind, layers, kSizes);
  if (!c.trains) {
    b.request.seeds.clear();
    b.request.gradients.clear();
  }
  CompileOptions options;
  options.storage = DType::bf16;
  options.rates = h200_rates();
  options.objective = c.objective;
  options.sizes = made.sizes;
  Compiled compiled = compile(b.graph, b.request, options);
  made.plan = std::move(compiled.plan);
  made.tried = compiled.alternatives.size();
  return made;
}

// A step's work without the names of what it works on.
std::string anonymous(const PlanStep& step) {
  const auto* program = std::get_if<Program>(&step.work);
  if (program == nullptr) return std::get<OpaqueCall>(step.work).function;
  Program unnamed = *program;
  unnamed.name = "program";
  for (size_t i = 0; i < unnamed.tensors.size(); ++i)
    unnamed.tensors[i].name = "t" + std::to_string(i);
  return text(unnamed);
}

std::vector<std::string> anonymous(const std::vector<PlanStep>& phase) {
  std::vector<std::string> texts;
  for (const PlanStep& step : phase) texts.push_back(anonymous(step));
  return texts;
}

// `longer` is `shorter` with one more period of its repeating part.
void expect_one_more_period(const std::vector<std::string>& shorter,
                            const std::vector<std::string>& longer) {
  ASSERT_GT(longer.size(), shorter.size());
  const size_t period = longer.size() - shorter.size();
  const auto first = std::mismatch(shorter.begin(), shorter.end(), longer.begin()).first;
  const auto last = std::mismatch(shorter.rbegin(), shorter.rend(), longer.rbegin()).first;
  const auto same_before = static_cast<size_t>(first - shorter.begin());
  const auto same_behind = static_cast<size_t>(last - shorter.rbegin());
  EXPECT_GE(same_before + same_behind, shorter.size() + period)
      << same_before << " steps before and " << same_behind << " behind are the same, of "
      << shorter.size() << "; the first that differs:\n"
      << longer[same_before];
}

size_t most_loads(const Plan& plan) {
  size_t most = 0;
  for (const auto* phase : {&plan.forward, &plan.backward}) {
    for (const PlanStep& step : *phase) {
      const auto* program = std::get_if<Program>(&step.work);
      if (program == nullptr) continue;
      const auto loads = std::count_if(program->steps.begin(), program->steps.end(),
                                       [](const Step& s) { return s.kind == StepKind::load_tile; });
      most = std::max(most, static_cast<size_t>(loads));
    }
  }
  return most;
}

double moved_bytes(const Deep& deep) {
  double bytes = 0;
  for (const auto* phase : {&deep.plan.forward, &deep.plan.backward}) {
    for (const PlanStep& step : *phase)
      bytes += cost_of(step, deep.plan, deep.sizes, h200_rates()).bytes;
  }
  return bytes;
}

class Depth : public testing::TestWithParam<Case> {};

TEST_P(Depth, EveryLayerIsPlannedAlike) {
  const std::vector<Deep> models{deep(GetParam(), 4), deep(GetParam(), 5), deep(GetParam(), 6),
                                 deep(GetParam(), 8)};
  for (const auto phase : {&Plan::forward, &Plan::backward}) {
    if (!GetParam().trains && phase == &Plan::backward) continue;
    const std::vector<std::string> of_4 = anonymous(models[0].plan.*phase);
    const std::vector<std::string> of_5 = anonymous(models[1].plan.*phase);
    const std::vector<std::string> of_6 = anonymous(models[2].plan.*phase);
    expect_one_more_period(of_4, of_5);
    expect_one_more_period(of_5, of_6);
    EXPECT_EQ((models[3].plan.*phase).size(), of_4.size() + 4 * (of_5.size() - of_4.size()));
  }
  const double layer = moved_bytes(models[1]) - moved_bytes(models[0]);
  EXPECT_EQ(moved_bytes(models[2]) - moved_bytes(models[1]), layer);
  EXPECT_EQ(moved_bytes(models[3]) - moved_bytes(models[0]), 4 * layer);
  const auto saved = [](const Deep& d) { return saved_bytes(d.plan, d.sizes); };
  const double saved_layer = saved(models[1]) - saved(models[0]);
  EXPECT_EQ(saved(models[2]) - saved(models[1]), saved_layer);
  EXPECT_EQ(saved(models[3]) - saved(models[0]), 4 * saved_layer);
  EXPECT_EQ(most_loads(models[3].plan), most_loads(models[0].plan));
  EXPECT_EQ(models[3].tried, models[0].tried);
}

INSTANTIATE_TEST_SUITE_P(Models, Depth, testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.name; });

// In float64, with what each program may see and nothing else.
TEST_P(Depth, PlansEqualTheGraph) {
  for (const int layers : {1, 3}) {
    Block b;
    deep_model(b, GetParam().kind, layers);
    if (!GetParam().trains) {
      b.request.seeds.clear();
      b.request.gradients.clear();
    }
    CompileOptions options;
    options.sizes = {{"M", 6}};
    options.objective = GetParam().objective;
    const Plan plan = compile(b.graph, b.request, options).plan;
    const auto inputs = random_inputs(b.graph, options.sizes, 7);
    PlanEvaluator evaluator(plan, options.sizes);
    evaluator.values = inputs;
    evaluator.run(plan.forward);
    evaluator.forget_temporaries();
    evaluator.run(plan.backward);
    for (const auto& [name, wanted] : plain_values(b.graph, b.request, inputs, options.sizes)) {
      ASSERT_TRUE(evaluator.values.contains(name)) << name;
      EXPECT_LT(std::sqrt(squared_error(evaluator.values.at(name), wanted)), 1e-11) << name;
    }
  }
}

}  // namespace
}  // namespace coda
