// SPDX-License-Identifier: Apache-2.0
// A plan in which a step reads what nobody has written is refused, whatever was done to it: a step
// left out, moved behind its reader or into the other phase, a store that names another tensor.
// Compiled plans of blocks, before and after mutation.
#include "plan/after/check_reads.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "coda/error.h"
#include "coda/plan.h"
#include "plan/blocks.h"

namespace coda {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

const DimValues kSizes{{"M", 140}};

struct Compilation {
  Plan plan;
  std::set<std::string> given;  // gradients that are added to
};

Compilation compile_block(const std::function<void(Block&)>& build, CompileOptions options = {},
                          bool accumulate = false) {
  Block b;
  build(b);
  Compilation c;
  for (GradientRequest& g : b.request.gradients) {
    g.accumulate = accumulate;
    if (accumulate) c.given.insert(g.name);
  }
  options.sizes = kSizes;
  c.plan = compile(b.graph, b.request, options).plan;
  return c;
}

std::vector<Compilation> compilations() {
  const LlamaSizes sizes{.sequence = 10};
  const auto model = [&](Block& b) { llama_model(b, 2, true, sizes); };
  CompileOptions fast;
  fast.objective = Objective::speed;
  CompileOptions in_blocks;
  in_blocks.loss_rows = 64;
  CompileOptions unfused;
  unfused.fuse = false;
  std::vector<Compilation> all;
  all.push_back(compile_block([&](Block& b) { llama_block(b, sizes); }));
  all.push_back(compile_block(model, {}, true));
  all.push_back(compile_block(model, fast));
  all.push_back(compile_block(model, in_blocks));
  all.push_back(compile_block([&](Block& b) { gpt2_model(b, 1, sizes); }, unfused));
  return all;
}

std::vector<PlanStep>& phase_of(Plan& plan, bool backward) {
  return backward ? plan.backward : plan.forward;
}

// Whether a later step depends on this one: it makes what is neither the caller's nor written by
// another step (memory may be used again).
bool makes_what_is_read(const Plan& plan, const PlanStep& step) {
  std::map<std::string, int> writers;
  for (const auto* phase : {&plan.forward, &plan.backward}) {
    for (const PlanStep& other : *phase) {
      for (const StepTensor& use : step_tensors(other)) writers[use.name] += use.written ? 1 : 0;
    }
  }
  for (const StepTensor& use : step_tensors(step)) {
    const TensorRole role = plan.tensor(use.name).role;
    const bool is_ours = role == TensorRole::saved || role == TensorRole::temporary;
    if (use.written && is_ours && writers.at(use.name) == 1) return true;
  }
  return false;
}

TEST(CheckReads, CompiledPlansReadOnlyWhatIsWritten) {
  for (const Compilation& c : compilations()) {
    EXPECT_NO_THROW(check_reads(c.plan, c.given, kSizes));
  }
}

TEST(CheckReads, AStepLeftOutIsFoundByItsReader) {
  int left_out = 0;
  for (const Compilation& c : compilations()) {
    for (const bool backward : {false, true}) {
      const std::vector<PlanStep>& steps = backward ? c.plan.backward : c.plan.forward;
      for (size_t i = 0; i < steps.size(); ++i) {
        if (!makes_what_is_read(c.plan, steps[i])) continue;
        Plan mutated = c.plan;
        std::vector<PlanStep>& phase = phase_of(mutated, backward);
        phase.erase(phase.begin() + static_cast<std::ptrdiff_t>(i));
        EXPECT_THAT([&] { check_reads(mutated, c.given, kSizes); },
                    ThrowsMessage<InternalError>(HasSubstr("nothing before it has written")))
            << "without step " << steps[i].name;
        ++left_out;
      }
    }
  }
  EXPECT_GT(left_out, 50);
}

TEST(CheckReads, AStepBehindItsReaderIsFound) {
  for (const Compilation& c : compilations()) {
    for (size_t i = 0; i < c.plan.forward.size(); ++i) {
      const PlanStep& step = c.plan.forward[i];
      if (step.loop >= 0 || !makes_what_is_read(c.plan, step)) continue;
      Plan mutated = c.plan;  // the step runs at the very end
      mutated.forward.erase(mutated.forward.begin() + static_cast<std::ptrdiff_t>(i));
      mutated.backward.push_back(step);
      EXPECT_THROW(check_reads(mutated, c.given, kSizes), InternalError) << step.name;
    }
  }
}

TEST(CheckReads, TheMessageNamesStepPhaseAndTensor) {
  Compilation c = compile_block([](Block& b) { llama_block(b); });
  // Its finalizer reads the partials of the first product.
  const PlanStep finalizer = c.plan.forward.at(1);
  ASSERT_EQ(finalizer.role, StepRole::finalizer);
  const std::string partial = step_tensors(finalizer).front().name;
  c.plan.forward.erase(c.plan.forward.begin());
  EXPECT_THAT([&] { check_reads(c.plan, {}, kSizes); },
              ThrowsMessage<InternalError>(testing::AllOf(HasSubstr("'" + finalizer.name + "'"),
                                                          HasSubstr("of the forward reads"),
                                                          HasSubstr("'" + partial + "'"))));
}

TEST(CheckReads, AGradientThatIsAddedToIsTheCallersToGive) {
  const Compilation c = compile_block([](Block& b) { llama_block(b); }, {}, true);
  EXPECT_NO_THROW(check_reads(c.plan, c.given, kSizes));
  EXPECT_THROW(check_reads(c.plan, {}, kSizes), InternalError);
}

TEST(CheckReads, ATensorIsThereWhenItsViewsCoverIt) {
  // Two steps each store half of the columns of `whole`; a third reads it.
  const auto step = [](const std::string& from, const std::string& to) {
    OpaqueCall call;
    call.function = "copy";
    call.inputs = {from};
    call.outputs = {to};
    PlanStep s;
    s.name = "to_" + to;
    s.role = StepRole::opaque;
    s.work = call;
    return s;
  };
  const auto tensor = [](const std::string& name, int64_t cols, TensorRole role) {
    PlanTensor t;
    t.decl = {name, {"M", cols}, DType::f32, TensorKind::dense, 1};
    t.role = role;
    return t;
  };
  Plan plan;
  plan.tensors = {tensor("x", 4, TensorRole::input), tensor("whole", 8, TensorRole::temporary),
                  tensor("left", 4, TensorRole::temporary),
                  tensor("right", 4, TensorRole::temporary), tensor("y", 8, TensorRole::output)};
  for (int view : {2, 3}) plan.tensors[static_cast<size_t>(view)].view_of = "whole";
  plan.tensors[3].column_offset = 4;
  plan.forward = {step("x", "left"), step("x", "right"), step("whole", "y")};
  EXPECT_NO_THROW(check_reads(plan, {}, kSizes));
  Plan half = plan;
  half.forward.erase(half.forward.begin() + 1);
  EXPECT_THROW(check_reads(half, {}, kSizes), InternalError);
  Plan overlapping = plan;
  overlapping.tensors[3].column_offset = 3;
  EXPECT_THROW(check_reads(overlapping, {}, kSizes), InternalError);
  Plan view_read = plan;
  view_read.forward = {step("x", "left"), step("left", "y")};
  EXPECT_NO_THROW(check_reads(view_read, {}, kSizes));
  // What is temporary in the forward is gone in the backward.
  Plan next_phase = plan;
  next_phase.backward = {next_phase.forward.back()};
  next_phase.forward.pop_back();
  EXPECT_THROW(check_reads(next_phase, {}, kSizes), InternalError);
}

}  // namespace
}  // namespace coda
