// SPDX-License-Identifier: Apache-2.0
// Inputs of recomputed layers that are in the host's memory between the phases: which ones, what is
// saved without them, and when they are copied.
#include "plan/after/host_copies.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "coda/error.h"
#include "plan/deep_models.h"
#include "plan/plan_means.h"
#include "plan/search/search.h"

namespace coda {
namespace {
namespace host_copies {

constexpr int kLayers = 7;
constexpr int64_t kRows = 8192;

CompileOptions options_of(bool on_host) {
  CompileOptions options;
  options.storage = DType::bf16;
  options.rates = h200_rates();
  options.sizes = {{"M", kRows}};
  options.recomputed_layers = kAllLayers;
  options.layers_on_host = on_host;
  options.overwrite_saved = true;
  return options;
}

Plan planned(Residual kind, bool on_host) {
  Block b;
  b.storage = DType::bf16;
  deep_model(b, kind, kLayers, kDeepSizes);
  return compile(b.graph, b.request, options_of(on_host)).plan;
}

// The steps of a phase that use a tensor.
std::vector<size_t> uses(const std::vector<PlanStep>& steps, const std::string& name,
                         bool StepTensor::* how) {
  std::vector<size_t> found;
  for (size_t i = 0; i < steps.size(); ++i)
    for (const StepTensor& use : step_tensors(steps[i]))
      if (use.name == name && use.*how) found.push_back(i);
  return found;
}

class HostCopies : public testing::TestWithParam<Residual> {};

// The first layer starts from token ids, and the input of the last one stays in memory.
TEST_P(HostCopies, AreAllInputsOfLayersButTheLast) {
  const Plan plan = planned(GetParam(), true);
  const Plan without = planned(GetParam(), false);
  const auto count = static_cast<double>(plan.host_copies.size());
  EXPECT_EQ(count, kLayers - 2);
  const DimValues sizes{{"M", kRows}};
  EXPECT_EQ(saved_bytes(without, sizes) - saved_bytes(plan, sizes),
            count * 2 * kRows * kDeepSizes.hidden);
  EXPECT_EQ(plan.forward.size(), without.forward.size());
  EXPECT_EQ(plan.backward.size(), without.backward.size());
}

// A copy starts when the tensor is complete, and a layer passes before its end is waited for.
TEST_P(HostCopies, HaveTheTimeOfALayerAndTwoTensorsAreThereAtATime) {
  const Plan plan = planned(GetParam(), true);
  std::vector<HostCopy> copies = plan.host_copies;
  std::ranges::sort(copies, {}, &HostCopy::out);
  for (size_t i = 0; i < copies.size(); ++i) {
    const HostCopy& copy = copies[i];
    EXPECT_EQ(uses(plan.forward, copy.stored, &StepTensor::written).back() + 1, copy.out);
    EXPECT_EQ(uses(plan.backward, copy.fetched, &StepTensor::read).front(), copy.in_end);
    EXPECT_TRUE(uses(plan.forward, copy.fetched, &StepTensor::read).empty());
    EXPECT_TRUE(uses(plan.backward, copy.stored, &StepTensor::read).empty());
    for (const auto& [name, steps] :
         {std::pair(copy.stored, &plan.forward), std::pair(copy.fetched, &plan.backward)})
      EXPECT_EQ(plan.tensor(name).role, TensorRole::temporary);
    if (i + 1 < copies.size()) {
      EXPECT_EQ(copy.out_end, copies[i + 1].out);
      EXPECT_EQ(copy.in, copies[i + 1].in_end);
    }
    const auto is_product = [](const PlanStep& step) { return step.role == StepRole::gemm; };
    const auto share = [&](const std::vector<PlanStep>& steps, size_t from, size_t to) {
      const auto first = steps.begin();
      return static_cast<double>(std::count_if(first + static_cast<std::ptrdiff_t>(from),
                                               first + static_cast<std::ptrdiff_t>(to),
                                               is_product)) /
             static_cast<double>(std::ranges::count_if(steps, is_product));
    };
    EXPECT_GT(share(plan.forward, copy.out, copy.out_end), 0.8 / kLayers) << copy.stored;
    EXPECT_GT(share(plan.backward, copy.in, copy.in_end), 0.8 / kLayers) << copy.stored;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, HostCopies,
                         testing::Values(Residual::pre_norm, Residual::sandwich,
                                         Residual::post_norm, Residual::parallel, Residual::gpt2),
                         [](const auto& info) { return name_of(info.param); });

TEST(HostCopiesOfNone, OfTwoRecomputedLayersNothingMovesAndTheNotesSaySo) {
  Block b;
  deep_model(b, Residual::pre_norm, kLayers, kDeepSizes);
  for (const int layers : {2, 3}) {
    CompileOptions options = options_of(true);
    options.recomputed_layers = layers;
    const Plan plan = compile(b.graph, b.request, options).plan;
    EXPECT_EQ(std::ssize(plan.host_copies), layers - 2);
    EXPECT_EQ(layers == 2,
              testing::Value(plan.notes,
                             testing::Contains(testing::HasSubstr("fewer than three layers"))));
  }
}

TEST(HostCopiesOfNone, LayersThatAreNotRecomputedAreRefused) {
  Block b;
  deep_model(b, Residual::pre_norm, 2, kDeepSizes);
  CompileOptions options = options_of(true);
  options.recomputed_layers = 0;
  try {
    compile(b.graph, b.request, options);
    ADD_FAILURE() << "not refused";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("only if the layers are recomputed"));
  }
}

}  // namespace host_copies
}  // namespace
}  // namespace coda
