// SPDX-License-Identifier: Apache-2.0
// Finds the first and last steps that use each tensor, then schedules the copies between them.
#include "plan/after/host_copies.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>

namespace coda {
namespace {

// A copy that is still to be scheduled (only `out` and `in_end` are set), and the layer that starts
// from the tensor.
struct Moved {
  int layer = 0;
  HostCopy copy;
};

std::vector<Moved> layer_starts(const Plan& plan) {
  std::set<std::string> viewed;
  for (const PlanTensor& tensor : plan.tensors) viewed.insert(tensor.view_of);
  std::vector<Moved> all;
  for (const PlanTensor& tensor : plan.tensors) {
    const std::string& name = tensor.decl.name;
    const bool is_saved = tensor.role == TensorRole::saved && tensor.view_of.empty();
    if (tensor.starts_layer < 0 || !is_saved || viewed.contains(name)) continue;
    Moved moved{tensor.starts_layer, {name, name + ".fetched", 0, 0, 0, 0}};
    bool is_in_loop = false;
    const auto for_each_use = [&](const std::vector<PlanStep>& steps, const auto& act) {
      for (size_t i = 0; i < steps.size(); ++i) {
        for (const StepTensor& use : step_tensors(steps[i])) {
          if (use.name != name) continue;
          is_in_loop = is_in_loop || steps[i].loop >= 0;
          act(i, use);
        }
      }
    };
    for_each_use(plan.forward, [&](size_t i, const StepTensor& use) {
      if (use.written) moved.copy.out = i + 1;
    });
    moved.copy.in_end = plan.backward.size();
    for_each_use(plan.backward, [&](size_t i, const StepTensor&) {
      moved.copy.in_end = std::min(moved.copy.in_end, i);
    });
    if (!is_in_loop) all.push_back(moved);
  }
  return all;
}

void rename(std::vector<PlanStep>& steps, const std::map<std::string, std::string>& names) {
  const auto replace = [&](std::string& name) {
    if (const auto found = names.find(name); found != names.end()) name = found->second;
  };
  for (PlanStep& step : steps) {
    if (auto* call = std::get_if<OpaqueCall>(&step.work)) {
      std::ranges::for_each(call->inputs, replace);
      std::ranges::for_each(call->outputs, replace);
      continue;
    }
    for (TensorDecl& decl : std::get<Program>(step.work).tensors) replace(decl.name);
    if (!step.later) continue;
    for (TensorDecl& decl : step.later->tensors) replace(decl.name);
  }
}

}  // namespace

void keep_layers_on_host(Plan& plan) {
  const std::vector<Moved> all = layer_starts(plan);
  std::map<std::string, std::string> fetched;
  for (const auto& [layer, copy] : all) {
    HostCopy moved = copy;
    moved.out_end = plan.forward.size();
    std::optional<size_t> in;
    for (const auto& [other, its] : all) {
      if (other <= layer) continue;
      if (its.out > copy.out) moved.out_end = std::min(moved.out_end, its.out);
      if (its.in_end < copy.in_end) in = std::max(in.value_or(0), its.in_end);
    }
    if (!in) continue;
    moved.in = *in;
    fetched[moved.stored] = moved.fetched;
    plan.host_copies.push_back(moved);
  }
  if (plan.host_copies.empty())
    plan.notes.emplace_back(
        "no input of a layer is in the host's memory: fewer than three layers are recomputed");
  std::vector<PlanTensor> tensors;
  for (PlanTensor tensor : plan.tensors) {
    const auto found = fetched.find(tensor.decl.name);
    if (found != fetched.end()) {
      tensor.role = TensorRole::temporary;
      tensors.push_back(tensor);
      tensor.decl.name = found->second;
    }
    tensors.push_back(tensor);
  }
  plan.tensors = std::move(tensors);
  rename(plan.backward, fetched);
}

}  // namespace coda
