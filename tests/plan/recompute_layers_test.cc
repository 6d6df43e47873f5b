// SPDX-License-Identifier: Apache-2.0
// Layers that the backward recomputes: gradients are the graph's, a further layer adds no more to
// what is saved than what it starts from, products are run once more and the loss's are not, and
// where there are no equal layers the plan is as without and says so; however the branches are
// joined to the residual stream.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "plan/deep_models.h"
#include "plan/plan_means.h"
#include "plan/search/search.h"

namespace coda {
namespace {
namespace recompute_layers_test {

constexpr int64_t kRows = 8192;

struct Planned {
  Plan plan;
  CompileOptions options;
  SearchWork work;
};

Planned planned(Residual kind, int layers, int again, DType storage = DType::bf16) {
  Planned made;
  Block b;
  b.storage = storage;
  deep_model(b, kind, layers, kDeepSizes);
  made.options.storage = storage;
  made.options.rates = h200_rates();
  made.options.sizes = {{"M", kRows}};
  made.options.recomputed_layers = again;
  made.plan = compile(b.graph, b.request, made.options, {}, &made.work).plan;
  return made;
}

double saved(const Planned& p) { return saved_bytes(p.plan, p.options.sizes); }

double flops(const Planned& p, const std::vector<PlanStep>& phase) {
  double sum = 0;
  for (const PlanStep& step : phase)
    sum += cost_of(step, p.plan, p.options.sizes, p.options.rates).flops;
  return sum;
}

class RecomputeLayers : public testing::TestWithParam<Residual> {};

// In float64, with what each program may see and nothing else; with logits whole and in blocks.
TEST_P(RecomputeLayers, GradientsAreTheGraphs) {
  for (const auto& [loss_rows, layers] : {std::pair(0, kAllLayers), {64, 3}}) {
    Block b;
    deep_model(b, GetParam(), 5);
    CompileOptions options;
    options.sizes = {{"M", 6}};
    options.loss_rows = loss_rows;
    const double kept = saved_bytes(compile(b.graph, b.request, options).plan, options.sizes);
    options.recomputed_layers = layers;
    const Plan plan = compile(b.graph, b.request, options).plan;
    EXPECT_LT(saved_bytes(plan, options.sizes), (layers == 3 ? 0.8 : 0.5) * kept);
    expect_plan_means(b, plan, options.sizes, random_inputs(b.graph, options.sizes, 7));
  }
}

// A layer saves the residual stream, and a number or two for each row (a norm's statistics). The
// forward does what it did. The backward does its products besides, but for the loss's, and for a
// layer's last one where that is only added (behind a norm it is recomputed too).
TEST_P(RecomputeLayers, ALayerSavesWhatItStartsFromAndItsProductsRunOnceMore) {
  const Planned six = planned(GetParam(), 6, kAllLayers);
  const Planned seven = planned(GetParam(), 7, kAllLayers);
  const Planned nine = planned(GetParam(), 9, kAllLayers);
  const double stream = 2.0 * kRows * kDeepSizes.hidden;
  const double layer = saved(seven) - saved(six);
  EXPECT_GE(layer, stream);
  EXPECT_LE(layer, 1.02 * stream);
  EXPECT_NEAR(saved(nine) - saved(seven), 2 * layer, 1);
  EXPECT_EQ(nine.work.plans, 1);  // its choices were found on few layers
  const Planned kept = planned(GetParam(), 7, 0);
  EXPECT_LT(layer, 0.2 * (saved(kept) - saved(planned(GetParam(), 6, 0))));
  EXPECT_DOUBLE_EQ(flops(seven, seven.plan.forward), flops(kept, kept.plan.forward));
  const double more = flops(seven, seven.plan.backward) - flops(kept, kept.plan.backward);
  const double head = 2.0 * kRows * kDeepSizes.hidden * kDeepSizes.vocab;
  EXPECT_GT(more, 0.5 * (flops(kept, kept.plan.forward) - head));
  const double most = flops(kept, kept.plan.forward) - head;
  EXPECT_LT(more, GetParam() == Residual::sandwich ? 1.001 * most : 0.95 * most);
}

INSTANTIATE_TEST_SUITE_P(Models, RecomputeLayers,
                         testing::Values(Residual::pre_norm, Residual::sandwich,
                                         Residual::post_norm, Residual::parallel, Residual::gpt2),
                         [](const auto& info) { return name_of(info.param); });

// Each further recomputed layer saves as much and costs as much as the one before it; as many
// as there are, or more, are all.
TEST(RunSomeAgain, TheFirstLayersAreRecomputed) {
  const Planned all = planned(Residual::pre_norm, 6, kAllLayers);
  Planned some[7];
  for (int layers = 0; layers < 7; ++layers) some[layers] = planned(Residual::pre_norm, 6, layers);
  EXPECT_EQ(saved(some[6]), saved(all));
  EXPECT_GT(saved(some[5]), saved(all));
  EXPECT_EQ(some[6].plan.backward.size(), all.plan.backward.size());
  const double less = saved(some[2]) - saved(some[3]);
  const double more = flops(some[3], some[3].plan.backward) - flops(some[2], some[2].plan.backward);
  EXPECT_GT(less, 0.08 * saved(some[0]));
  for (int layers = 2; layers < 5; ++layers) {
    EXPECT_NEAR(saved(some[layers]) - saved(some[layers + 1]), less, 0.01 * less) << layers;
    EXPECT_NEAR(flops(some[layers + 1], some[layers + 1].plan.backward) -
                    flops(some[layers], some[layers].plan.backward),
                more, 0.01 * more)
        << layers;
    EXPECT_EQ(flops(some[layers], some[layers].plan.forward), flops(all, all.plan.forward));
  }
}

TEST(RunNothingAgain, WhereThereAreNoEqualLayersThePlanIsAsWithoutAndSaysSo) {
  const Planned kept = planned(Residual::pre_norm, 1, 0);
  const Planned again = planned(Residual::pre_norm, 1, kAllLayers);
  EXPECT_EQ(saved(again), saved(kept));
  EXPECT_EQ(again.plan.backward.size(), kept.plan.backward.size());
  EXPECT_THAT(again.plan.notes,
              testing::Contains(testing::HasSubstr("no equal consecutive layers")));
}

}  // namespace recompute_layers_test
}  // namespace
}  // namespace coda
