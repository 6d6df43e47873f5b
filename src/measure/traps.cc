// SPDX-License-Identifier: Apache-2.0
#include "measure/traps.h"

#include <cmath>
#include <limits>

#include "base/relative_error.h"
#include "base/stored_element.h"
#include "plan/after/in_place.h"
#include "program/judge.h"

namespace coda::measure {
namespace {

TensorValues scaled(const Program& program, TensorValues inputs, double factor) {
  for (const TensorDecl& decl : program.tensors) {
    const auto found = inputs.find(decl.name);
    if (found == inputs.end() || !is_floating(decl.dtype)) continue;
    // Zero without a sign: in 1 / x that of a sum of zeros would depend on their order.
    for (double& x : found->second) x = rounded_to(decl.dtype, x * factor + 0.0);
  }
  return inputs;
}

bool same_numbers(const std::vector<double>& a, const std::vector<double>& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] != b[i] && !(std::isnan(a[i]) && std::isnan(b[i]))) return false;
  }
  return a.size() == b.size();
}

// Where the program itself does not hold in fp32 (a square overflows), a backend cannot be judged:
// that is the author's to know.
void check_inputs(Backend& backend, const Program& program, const DimValues& sizes,
                  const std::string& what, const TensorValues& inputs, CheckedBackend& result) {
  program::Judge judge(program, sizes, inputs);
  const GuardedRun run = run_between_guards(backend, program, sizes, inputs);
  const TensorValues in_fp32 = program::evaluate(program, sizes, inputs, {.in_fp32 = true});
  bool holds = true;
  for (const auto& [name, computed] : run.results) {
    const program::Judge::Verdict verdict = judge.of(name, computed);
    if (verdict.is_right()) continue;
    holds = false;
    if (relative_error(in_fp32.at(name), judge.exact().at(name)) > verdict.bound) {
      result.notes.push_back("of " + what + " inputs " + name +
                             " overflows or loses its digits in fp32: the program is sensitive");
      continue;
    }
    result.wrong_traps.push_back("of " + what + " inputs " + name + " is wrong");
  }
  if (holds) result.traps.push_back(what + " inputs");
}

void check_infinite_guards(Backend& backend, const Program& program, const DimValues& sizes,
                           const TensorValues& inputs, const GuardedRun& usual,
                           CheckedBackend& result) {
  const GuardedRun run =
      run_between_guards(backend, program, sizes, inputs, std::numeric_limits<double>::infinity());
  bool is_right = run.overrun.empty();
  for (const auto& [name, values] : run.results)
    is_right = is_right && same_numbers(values, usual.results.at(name));
  if (is_right) {
    result.traps.emplace_back("NaN and infinity around tensors");
  } else {
    result.wrong_traps.emplace_back("infinity around tensors changes results");
  }
}

// As plans do it (plan/after/in_place.h): what is stored lies where a tile was read.
void check_in_place(Backend& backend, const Program& program, const DimValues& sizes,
                    const TensorValues& inputs, const GuardedRun& usual, CheckedBackend& result) {
  Plan plan = one_step_plan(program);
  for (PlanTensor& tensor : plan.tensors) tensor.role = TensorRole::temporary;
  reuse_in_place(plan, false);
  const auto& shared = std::get<Program>(plan.forward.front().work);
  if (shared == program) return;
  const GuardedRun run = run_between_guards(backend, shared, sizes, inputs);
  bool is_right = run.overrun.empty();
  for (size_t i = 0; i < program.steps.size(); ++i) {
    const int tensor = program.steps[i].tensor();
    if (tensor < 0 || !usual.results.contains(program.tensors[tensor].name)) continue;
    const std::string& place = shared.tensors[shared.steps[i].tensor()].name;
    if (!run.results.contains(place)) continue;
    is_right = is_right &&
               same_numbers(run.results.at(place), usual.results.at(program.tensors[tensor].name));
  }
  if (is_right) {
    result.traps.emplace_back("results in the place of inputs");
  } else {
    result.wrong_traps.emplace_back("results in the place of inputs differ");
  }
}

}  // namespace

void check_traps(Backend& backend, const Program& program, const DimValues& sizes,
                 const TensorValues& inputs, const GuardedRun& usual, CheckedBackend& result) {
  const auto check_scaled = [&](const char* what, double factor) {
    check_inputs(backend, program, sizes, what, scaled(program, inputs, factor), result);
  };
  check_scaled("zero", 0);
  check_scaled("huge", 0x1p10);
  check_scaled("tiny", 0x1p-20);
  check_infinite_guards(backend, program, sizes, inputs, usual, result);
  check_in_place(backend, program, sizes, inputs, usual, result);
}

}  // namespace coda::measure
