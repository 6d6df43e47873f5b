// SPDX-License-Identifier: Apache-2.0
#include "measure/one_by_one.h"

#include <algorithm>
#include <map>
#include <set>

#include "coda/error.h"
#include "program/step_table.h"
#include "program/tile_map.h"

namespace coda::measure {
namespace {

class Unfusing {
 public:
  explicit Unfusing(const Program& program)
      : program_(program), on_tile_(program::map_tiles(program).on_tile) {
    for (const Step& step : program.steps) {
      if (program::is_effect(step)) continue;
      for (const int tensor : program::tensors_of(step)) read_.insert(program.tensors[tensor].name);
    }
    for (const Step& step : program.steps) {
      if (!program::is_tile_store(step)) continue;
      const TensorDecl& decl = program.tensors[step.tensor()];
      storage_ = decl.dtype;
      if (!read_.contains(decl.name)) place_.try_emplace(step.operands[0], decl);
    }
  }

  std::vector<Program> programs() {
    for (int i = 0; i < std::ssize(program_.steps); ++i) {
      const Step& s = step(i);
      if (program::is_effect(s)) {
        const auto place = place_.find(s.operands[0]);
        const bool is_there = program::is_tile_store(s) && place != place_.end() &&
                              place->second.name == program_.tensors[s.tensor()].name;
        if (!is_there) add(i);
      } else if (is_operation(i)) {
        add(i);
      }
    }
    return std::move(programs_);
  }

 private:
  const Step& step(int i) const { return program_.steps[static_cast<size_t>(i)]; }

  // What has a program of its own: the value is a tile, and not one that is only loaded.
  bool is_operation(int i) const {
    const Step& s = step(i);
    return on_tile_[static_cast<size_t>(i)] != 0 && s.shape.is_tensor() &&
           !program::is_tile_load(s) && !program::is_selection(s);
  }
  const TensorDecl& place_of(int i) {
    const TensorDecl own{program_.name + ".v" + std::to_string(i), step(i).shape, storage_,
                         TensorKind::dense, 1};
    return place_.try_emplace(i, own).first->second;
  }

  int tensor(Program& one, const TensorDecl& decl) const {
    const auto found = std::find_if(one.tensors.begin(), one.tensors.end(),
                                    [&](const TensorDecl& t) { return t.name == decl.name; });
    if (found != one.tensors.end()) return static_cast<int>(found - one.tensors.begin());
    one.tensors.push_back(decl);
    return static_cast<int>(one.tensors.size()) - 1;
  }
  int push(Program& one, Step s) const {
    one.steps.push_back(std::move(s));
    return static_cast<int>(one.steps.size()) - 1;
  }

  // As the step alone has the tensor: a partial beside pairs is of half the columns, which alone it
  // is not.
  TensorDecl declared(int i, int index) const {
    TensorDecl decl = program_.tensors[static_cast<size_t>(index)];
    if (decl.kind == TensorKind::dense || !program::is_effect(step(i))) return decl;
    const Shape& value = step(step(i).operands[0]).shape;
    if (decl.shape == value) return decl;
    decl.name = program_.name + ".p" + std::to_string(i);
    decl.shape = value;
    return decl;
  }

  // The step with its operands in the program that is made.
  int copy(Program& one, int i, std::map<int, int>& made) {
    Step s = step(i);
    for (int& operand : s.operands) operand = take(one, operand, made);
    for (int* index : program::tensor_fields(s)) {
      if (*index >= 0) *index = tensor(one, declared(i, *index));
    }
    return push(one, std::move(s));
  }
  int take(Program& one, int i, std::map<int, int>& made) {
    if (const auto known = made.find(i); known != made.end()) return known->second;
    const int result = is_operation(i)
                           ? push(one, program::tile_load(tensor(one, place_of(i)), step(i).shape))
                           : copy(one, i, made);
    made[i] = result;
    return result;
  }
  void add(int i) {
    Program one{.name = program_.name + ".step" + std::to_string(i), .tensors = {}, .steps = {}};
    std::map<int, int> made;
    const int value = copy(one, i, made);
    if (!program::is_effect(step(i)))
      push(one, program::tile_store(tensor(one, place_of(i)), value, step(i).shape));
    programs_.push_back(std::move(one));
  }

  const Program& program_;
  std::vector<char> on_tile_;
  std::set<std::string> read_;
  DType storage_ = DType::f32;
  std::map<int, TensorDecl> place_;  // where a value lies
  std::vector<Program> programs_;
};

}  // namespace

std::optional<Plan> one_by_one(const Program& program) {
  const std::vector<Program> programs = Unfusing(program).programs();
  if (programs.size() < 2) return std::nullopt;
  Plan plan = one_step_plan(program);
  plan.forward.clear();
  std::set<std::string> declared;
  for (const PlanTensor& tensor : plan.tensors) declared.insert(tensor.decl.name);
  for (const Program& one : programs) {
    try {
      verify(one);
    } catch (const Error&) {
      return std::nullopt;
    }
    for (const TensorDecl& decl : one.tensors) {
      if (declared.insert(decl.name).second)
        plan.tensors.push_back({.decl = decl, .role = TensorRole::temporary});
    }
    plan.forward.push_back(
        {one.name, program::has_product(one) ? StepRole::gemm : StepRole::tile, one, {}});
  }
  return plan;
}

}  // namespace coda::measure
