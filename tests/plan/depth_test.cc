// SPDX-License-Identifier: Apache-2.0
// What a model of many equal layers must not depend on: its depth. The programs of a middle layer
// are the same in every layer, each layer adds as many bytes as the one before, no program reads
// more tensors in a deeper model, and the search compares no more plans, however the branches are
// joined to the residual stream. A deep model is planned once; its choices are found on few layers,
// and are those that a search on the whole would find.
#include <gtest/gtest.h>

#include <algorithm>

#include "plan/deep_models.h"
#include "plan/plan_means.h"
#include "plan/search/search.h"

namespace coda {
namespace {

struct DepthCase {
  std::string name;
  Residual kind;
  Objective objective;
  bool trains;
  int few = 3;  // layers from which on each further one is planned as the one before
};

std::vector<DepthCase> depth_cases() {
  const std::vector<std::pair<std::string, Residual>> kinds{{"pre_norm", Residual::pre_norm},
                                                            {"sandwich", Residual::sandwich},
                                                            {"post_norm", Residual::post_norm},
                                                            {"parallel", Residual::parallel},
                                                            {"gpt2", Residual::gpt2}};
  std::vector<DepthCase> all;
  for (const auto& [name, kind] : kinds) {
    all.push_back({name + "_memory", kind, Objective::memory, true});
    // Of three sandwiched layers the loss's costs still outweigh the layers' own.
    all.push_back(
        {name + "_speed", kind, Objective::speed, true, kind == Residual::sandwich ? 4 : 3});
    all.push_back({name + "_forward", kind, Objective::speed, false});
  }
  return all;
}

struct Deep {
  DimValues sizes{{"M", 8192}};
  Plan plan;
  size_t tried = 0;  // plans that the search compared
  SearchWork work;
};

Deep deep(const DepthCase& c, int layers) {
  Deep made;
  Block b;
  b.storage = DType::bf16;
  deep_model(b, c.kind, layers, kDeepSizes);
  if (!c.trains) {
    b.request.seeds.clear();
    b.request.gradients.clear();
  }
  CompileOptions options;
  options.storage = DType::bf16;
  options.rates = h200_rates();
  options.objective = c.objective;
  options.sizes = made.sizes;
  Compiled compiled = compile(b.graph, b.request, options, {}, &made.work);
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

// `longer` is `shorter` with more periods of its repeating part.
void expect_more_periods(const std::vector<std::string>& shorter,
                         const std::vector<std::string>& longer, size_t period) {
  ASSERT_GT(longer.size(), shorter.size());
  const auto first = std::mismatch(shorter.begin(), shorter.end(), longer.begin()).first;
  const auto last = std::mismatch(shorter.rbegin(), shorter.rend(), longer.rbegin()).first;
  const auto same_before = static_cast<size_t>(first - shorter.begin());
  const auto same_behind = static_cast<size_t>(last - shorter.rbegin());
  ASSERT_GE(same_before + same_behind, shorter.size() + period)
      << same_before << " steps before and " << same_behind << " behind are the same, of "
      << shorter.size() << "; the first that differs:\n"
      << longer[same_before];
  for (size_t i = same_before; i < longer.size() - same_behind; ++i)
    ASSERT_EQ(longer[i], longer[i - period]) << "step " << i;
}

size_t most_loads(const Plan& plan) {
  size_t most = 0;
  for (const auto* phase : {&plan.forward, &plan.backward}) {
    for (const PlanStep& step : *phase) {
      const auto* program = std::get_if<Program>(&step.work);
      if (program == nullptr) continue;
      const auto loads =
          std::count_if(program->steps.begin(), program->steps.end(),
                        [](const Step& s) { return s.kind() == StepKind::load_tile; });
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

class Depth : public testing::TestWithParam<DepthCase> {};

// The first two are searched as a whole.
TEST_P(Depth, EveryLayerIsPlannedAlike) {
  constexpr int kDeep = 12;
  const int layers = GetParam().few;
  const Deep few = deep(GetParam(), layers);
  const Deep one_more = deep(GetParam(), layers + 1);
  const Deep many = deep(GetParam(), kDeep);
  EXPECT_EQ(one_more.work.plans_of_few, 0);
  EXPECT_EQ(many.work.plans, 1);
  for (const auto phase : {&Plan::forward, &Plan::backward}) {
    if (!GetParam().trains && phase == &Plan::backward) continue;
    const std::vector<std::string> of_few = anonymous(few.plan.*phase);
    const std::vector<std::string> of_more = anonymous(one_more.plan.*phase);
    const std::vector<std::string> of_many = anonymous(many.plan.*phase);
    const size_t period = of_more.size() - of_few.size();
    expect_more_periods(of_few, of_more, period);
    expect_more_periods(of_more, of_many, period);
    EXPECT_EQ(of_many.size(), of_more.size() + (kDeep - layers - 1) * period);
  }
  const double layer = moved_bytes(one_more) - moved_bytes(few);
  EXPECT_EQ(moved_bytes(many) - moved_bytes(one_more), (kDeep - layers - 1) * layer);
  const auto saved = [](const Deep& d) { return saved_bytes(d.plan, d.sizes); };
  EXPECT_EQ(saved(many) - saved(one_more), (kDeep - layers - 1) * (saved(one_more) - saved(few)));
  EXPECT_EQ(most_loads(many.plan), most_loads(few.plan));
  EXPECT_EQ(many.tried, one_more.tried);
}

// Counted for the forward, whose plans are made sooner.
TEST(DepthOfForward, TheSearchsWorkDoesNotGrow) {
  for (const DepthCase& c : depth_cases()) {
    if (c.trains) continue;
    SCOPED_TRACE(c.name);
    const Deep of_12 = deep(c, 12);
    const Deep of_24 = deep(c, 24);
    EXPECT_EQ(of_24.work.plans, 1);
    EXPECT_EQ(of_24.work.plans_of_few, of_12.work.plans_of_few);
    EXPECT_EQ(of_24.work.nodes_of_few, of_12.work.nodes_of_few);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Depth, testing::ValuesIn(depth_cases()),
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
    expect_plan_means(b, plan, options.sizes, random_inputs(b.graph, options.sizes, 7));
  }
}

}  // namespace
}  // namespace coda
