// SPDX-License-Identifier: Apache-2.0
// Each phase keeps the tensors that its steps name, and the owners of views among them.
#include "coda/split_plan.h"

#include <map>
#include <set>

namespace coda {
namespace {

struct Use {
  bool read = false;
  bool written = false;
};

// How the steps use each tensor with its own memory, directly or through views.
std::map<std::string, Use> uses_of(const std::vector<PlanStep>& steps, const Plan& plan) {
  std::map<std::string, Use> uses;
  for (const PlanStep& step : steps) {
    for (const StepTensor& tensor : step_tensors(step)) {
      const PlanTensor* owner = &plan.tensor(tensor.name);
      while (!owner->view_of.empty()) owner = &plan.tensor(owner->view_of);
      Use& use = uses[owner->decl.name];
      use.read |= tensor.read;
      use.written |= tensor.written;
    }
  }
  return uses;
}

// The plan of these steps; `role` gives the roles of tensors with their own memory.
Plan phase_of(const Plan& plan, const std::vector<PlanStep>& steps, const auto& role) {
  Plan phase{
      .tensors = {}, .forward = steps, .backward = {}, .loops = plan.loops, .notes = plan.notes};
  std::set<std::string> named;
  for (const PlanStep& step : steps)
    for (const StepTensor& tensor : step_tensors(step)) {
      for (std::string name = tensor.name; !name.empty(); name = plan.tensor(name).view_of)
        named.insert(name);
    }
  std::map<std::string, TensorRole> roles;  // a view is declared after its owner
  for (const PlanTensor& tensor : plan.tensors) {
    if (!named.contains(tensor.decl.name)) continue;
    PlanTensor kept = tensor;
    kept.role = tensor.view_of.empty() ? role(tensor) : roles.at(tensor.view_of);
    roles[tensor.decl.name] = kept.role;
    phase.tensors.push_back(kept);
  }
  return phase;
}

}  // namespace

SplitPlan split_phases(const Plan& plan) {
  const std::map<std::string, Use> forward = uses_of(plan.forward, plan);
  SplitPlan split;
  split.forward = phase_of(plan, plan.forward, [](const PlanTensor& tensor) {
    return tensor.role == TensorRole::saved ? TensorRole::output : tensor.role;
  });
  const std::map<std::string, Use> backward = uses_of(plan.backward, plan);
  split.backward = phase_of(plan, plan.backward, [&](const PlanTensor& tensor) {
    const auto made = forward.find(tensor.decl.name);
    const bool is_made = made != forward.end() && made->second.written;
    if (!is_made || backward.at(tensor.decl.name).written) return tensor.role;
    return TensorRole::input;
  });
  return split;
}

Plan in_one_phase(const Plan& plan) {
  std::vector<PlanStep> steps = plan.forward;
  steps.insert(steps.end(), plan.backward.begin(), plan.backward.end());
  return phase_of(plan, steps, [](const PlanTensor& tensor) {
    return tensor.role == TensorRole::saved ? TensorRole::temporary : tensor.role;
  });
}

}  // namespace coda
