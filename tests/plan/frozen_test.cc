// SPDX-License-Identifier: Apache-2.0
// Inputs whose gradient nobody wants are frozen: their gradients have no steps, nothing is saved
// for them, and no step of the backward stands there but for what is wanted.
#include <gtest/gtest.h>

#include <set>

#include "plan/plan_means.h"

namespace coda {
namespace {

struct FrozenModel {
  Block block;
  DimValues sizes{{"M", 12}};
  Plan plan;

  // Two layers with embedding, head and loss; gradients of these alone.
  explicit FrozenModel(const std::set<std::string>& wanted) {
    llama_model(block, 2, false);
    std::erase_if(block.request.gradients,
                  [&](const GradientRequest& g) { return !wanted.contains(g.name); });
    if (wanted.empty()) block.request.seeds.clear();
    CompileOptions options;
    options.sizes = sizes;
    plan = compile(block.graph, block.request, options).plan;
  }

  double saved() const { return saved_bytes(plan, sizes); }
};

struct Names {
  std::set<std::string> read;
  std::set<std::string> written;
};

Names names_of(const PlanStep& step) {
  Names names;
  if (const auto* call = std::get_if<OpaqueCall>(&step.work)) {
    names.read.insert(call->inputs.begin(), call->inputs.end());
    names.written.insert(call->outputs.begin(), call->outputs.end());
    return names;
  }
  const auto& program = std::get<Program>(step.work);
  const auto name = [&](int tensor) { return program.tensors[static_cast<size_t>(tensor)].name; };
  for (const Step& s : program.steps) {
    for (const GemmSegment& segment : s.segments()) {
      names.read.insert(name(segment.a));
      names.read.insert(name(segment.b));
    }
    if (s.row_index() >= 0) names.read.insert(name(s.row_index()));
    if (s.tensor() < 0) continue;
    const bool effect = s.kind() == StepKind::store_tile || s.kind() == StepKind::store_vector ||
                        s.kind() == StepKind::row_partial || s.kind() == StepKind::column_partial;
    (effect ? names.written : names.read).insert(name(s.tensor()));
  }
  return names;
}

// Every step of the backward writes something that a wanted gradient is made from.
void expect_every_step_is_needed(const FrozenModel& m) {
  const auto base = [&](std::string name) {
    while (!m.plan.tensor(name).view_of.empty()) name = m.plan.tensor(name).view_of;
    return name;
  };
  std::set<std::string> needed;
  for (const GradientRequest& g : m.block.request.gradients) needed.insert(g.name);
  for (auto step = m.plan.backward.rbegin(); step != m.plan.backward.rend(); ++step) {
    const Names names = names_of(*step);
    bool is_needed = false;
    for (const std::string& name : names.written) {
      is_needed = is_needed || needed.contains(base(name));
    }
    EXPECT_TRUE(is_needed) << step->name;
    for (const std::string& name : names.read) needed.insert(base(name));
  }
}

void expect_right_gradients(const FrozenModel& m) {
  expect_plan_means(m.block, m.plan, m.sizes, random_inputs(m.block.graph, m.sizes, 7));
}

std::set<std::string> all_gradients() {
  Block b;
  llama_model(b, 2, false);
  std::set<std::string> names;
  for (const GradientRequest& g : b.request.gradients) names.insert(g.name);
  return names;
}

TEST(Frozen, OneWantedWeightHasItsOwnStepsOnly) {
  const FrozenModel all(all_gradients());
  for (const std::string& wanted : all_gradients()) {
    SCOPED_TRACE(wanted);
    const FrozenModel m({wanted});
    expect_every_step_is_needed(m);
    expect_right_gradients(m);
    EXPECT_LT(m.plan.backward.size(), all.plan.backward.size());
    EXPECT_LE(m.saved(), all.saved());
  }
}

// The last layer's last weight is reached by way of the head alone: no other weight is read, and
// neither attention nor any other part of a layer is differentiated or saved for.
TEST(Frozen, TheLastWeightCostsNothingOfTheLayersBeforeIt) {
  const FrozenModel all(all_gradients());
  const FrozenModel m({"d_l1.down"});
  int products = 0;
  for (const PlanStep& step : m.plan.backward) {
    EXPECT_NE(step.role, StepRole::opaque) << step.name;
    if (step.role == StepRole::gemm) ++products;
    for (const std::string& name : names_of(step).read) {
      if (m.plan.tensor(name).role != TensorRole::parameter) continue;
      EXPECT_TRUE(name == "final_norm" || name == "head") << step.name << " reads " << name;
    }
  }
  EXPECT_EQ(products, 2);  // through the head, and the gradient itself
  EXPECT_LT(m.saved(), 0.4 * all.saved());
}

TEST(Frozen, WithNothingWantedNothingIsSavedAndNothingRuns) {
  const FrozenModel m(std::set<std::string>{});
  EXPECT_TRUE(m.plan.backward.empty());
  EXPECT_EQ(m.saved(), 0);
}

}  // namespace
}  // namespace coda
