// SPDX-License-Identifier: Apache-2.0
// Which gradients are exchanged together and when, read off the plans of models.
#include "train/exchange_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <variant>

#include "coda/rates.h"
#include "train/gradient_session.h"
#include "train/tiny_model.h"
#include "train/train_options.h"

namespace coda {
namespace {
namespace exchanges {

struct Step {
  Compiled compiled;
  std::vector<ExchangedParameter> parameters;
};

Step step_of(DType storage, int64_t layers, bool tied, int64_t loss_rows,
             EightBits eight_bits = EightBits::none) {
  ModelTrainSettings settings = tiny_settings();
  auto& config = std::get<LlamaConfig>(settings.model);
  config.layers = layers;
  config.tied = tied;
  settings.storage = storage;
  settings.batch = 8;
  settings.loss_rows = loss_rows;
  settings.eight_bits = eight_bits;
  const auto model =
      build_model(settings.model, {.storage = storage, .positions = settings.sequence});
  Step step;
  std::vector<std::string> names;
  for (const ModelParameter& p : model->parameters) {
    names.push_back(p.name);
    const Node& node = model->graph.node(p.value.id);
    step.parameters.push_back({p.name, node.shape.rows.constant() * node.shape.cols.constant(),
                               node.dtype != DType::f32});
  }
  set_step(settings, *model);
  step.compiled = compile_step(model->graph, model->loss, names, settings, h200_rates());
  return step;
}

// Whether any step of the backward from `first` on reads or writes the gradient, or a view of it.
bool is_touched(const Plan& plan, const std::string& parameter, size_t first) {
  std::set<std::string> names{gradient_name(parameter)};
  for (const PlanTensor& tensor : plan.tensors)
    if (names.contains(tensor.view_of)) names.insert(tensor.decl.name);
  for (size_t i = first; i < plan.backward.size(); ++i) {
    for (const StepTensor& use : step_tensors(plan.backward[i]))
      if (names.contains(use.name)) return true;
  }
  return false;
}

TEST(ExchangePlan, StartsBeforeOpaqueCallsWhatNoLaterStepTouches) {
  for (const DType storage : {DType::f32, DType::bf16}) {
    for (const bool tied : {false, true}) {
      for (const int64_t loss_rows : {0, 64}) {
        const Step step = step_of(storage, 6, tied, loss_rows);
        const ExchangePlan exchange = exchange_plan(step.compiled, step.parameters, 2, 0);
        ASSERT_EQ(exchange.shard_of.size(), step.parameters.size());
        EXPECT_GT(exchange.overlapped_elements(), exchange.elements() / 2);
        int64_t all = 0;
        std::set<size_t> used;
        for (size_t i = 0; i < step.parameters.size(); ++i) {
          const ExchangedParameter& p = step.parameters[i];
          const ExchangePlan::Shard& shard = exchange.shards.at(exchange.shard_of[i]);
          all += p.elements;
          used.insert(exchange.shard_of[i]);
          EXPECT_EQ(shard.has_copy, p.has_copy) << p.name;
          if (shard.start == ExchangePlan::kBehind) continue;
          EXPECT_TRUE(
              std::holds_alternative<OpaqueCall>(step.compiled.plan.backward[shard.start].work));
          EXPECT_FALSE(is_touched(step.compiled.plan, p.name, shard.start)) << p.name;
        }
        EXPECT_EQ(used.size(), exchange.shards.size());
        EXPECT_EQ(all, exchange.elements());
        EXPECT_GT(exchange.shards.size(), 4U);
        EXPECT_LE(exchange.shards.size(), 16U + 1);
      }
    }
  }
}

// A parameter's own name and those of its copies in 8 bits.
std::set<std::string> names_of(const Compiled& compiled, const std::string& parameter) {
  std::set<std::string> names{parameter};
  for (const ParameterCopy& copy : compiled.parameter_copies) {
    if (copy.parameter != parameter) continue;
    for (const TensorDecl& decl : copy.program.tensors)
      if (size_of(decl.dtype) == 1) names.insert(decl.name);
  }
  return names;
}

// Each shard's weights are gathered before the first step that reads one of them or a copy of one,
// and start before a call that reads none.
TEST(ExchangePlan, GathersWeightsBeforeTheyAreRead) {
  struct Case {
    DType storage;
    EightBits eight_bits;
  };
  for (const auto& [storage, eight_bits] : {Case{DType::f32, EightBits::none},
                                            {DType::bf16, EightBits::none},
                                            {DType::bf16, EightBits::fp8}}) {
    for (const bool tied : {false, true}) {
      const Step step = step_of(storage, 6, tied, 0, eight_bits);
      EXPECT_EQ(step.compiled.parameter_copies.empty(), eight_bits == EightBits::none);
      const std::vector<PlanStep>& forward = step.compiled.plan.forward;
      const ExchangePlan exchange = exchange_plan(step.compiled, step.parameters, 2, 0);
      EXPECT_EQ(exchange.forward_steps, forward.size());
      EXPECT_GT(exchange.elements_under(), exchange.elements() / 2);
      std::set<std::string> names;
      std::vector<size_t> first(exchange.shards.size(), forward.size());
      for (size_t i = 0; i < step.parameters.size(); ++i) {
        const std::set<std::string> its_names = names_of(step.compiled, step.parameters[i].name);
        names.insert(its_names.begin(), its_names.end());
        size_t& its = first[exchange.shard_of[i]];
        for (size_t s = forward.size(); s-- > 0;)
          for (const StepTensor& use : step_tensors(forward[s]))
            if (its_names.contains(use.name)) its = std::min(its, s);
      }
      for (size_t i = 0; i < exchange.shards.size(); ++i) {
        const ExchangePlan::Shard& shard = exchange.shards[i];
        EXPECT_EQ(shard.read, first[i]) << i;
        if (shard.gather == ExchangePlan::kWithUpdate) continue;
        EXPECT_LT(shard.gather, shard.read);
        EXPECT_TRUE(std::holds_alternative<OpaqueCall>(forward[shard.gather].work));
        for (const StepTensor& use : step_tensors(forward[shard.gather]))
          EXPECT_FALSE(names.contains(use.name)) << use.name;
      }
      EXPECT_EQ(exchange_plan(step.compiled, step.parameters, 2, INT64_MAX).elements_under(), 0);
    }
  }
}

// All processes find the same, in whatever order they name their parameters, and it does not depend
// on how much is exchanged at once.
TEST(ExchangePlan, HasTheSameShardsForAnyOrderAndSize) {
  Step step = step_of(DType::bf16, 6, true, 0);
  const ExchangePlan exchange = exchange_plan(step.compiled, step.parameters, 2, 0);
  std::vector<ExchangedParameter> reversed(step.parameters.rbegin(), step.parameters.rend());
  std::vector<size_t> shard_of = exchange_plan(step.compiled, reversed, 2, 0).shard_of;
  std::ranges::reverse(shard_of);
  EXPECT_EQ(shard_of, exchange.shard_of);
  int64_t beside = exchange.overlapped_elements();
  for (const int64_t bytes : {int64_t{40'000}, 3 * exchange.elements(), INT64_MAX}) {
    const ExchangePlan larger = exchange_plan(step.compiled, step.parameters, 2, bytes);
    EXPECT_EQ(larger.shard_of, exchange.shard_of);
    EXPECT_LE(larger.overlapped_elements(), beside);
    beside = larger.overlapped_elements();
    std::map<size_t, int64_t> at_once;
    for (const ExchangePlan::Shard& shard : larger.shards)
      if (shard.start != ExchangePlan::kBehind) at_once[shard.start] += 4 * shard.elements;
    for (const auto& [start, its] : at_once) EXPECT_GE(its, bytes) << start;
  }
  EXPECT_EQ(beside, 0);
}

TEST(ExchangePlan, OfOneProcessIsOneShard) {
  const Step step = step_of(DType::bf16, 2, true, 0);
  const ExchangePlan exchange = exchange_plan(step.compiled, step.parameters, 1, 0);
  ASSERT_EQ(exchange.shards.size(), 1U);
  EXPECT_TRUE(exchange.shards[0].has_copy);
  EXPECT_EQ(exchange.overlapped_elements(), 0);
  EXPECT_EQ(exchange.elements_under(), 0);
}

}  // namespace exchanges
}  // namespace
}  // namespace coda
