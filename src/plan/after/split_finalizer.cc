// SPDX-License-Identifier: Apache-2.0
// Marks the values that depend on a single row, and copies the steps into two programs.
#include "plan/after/split_finalizer.h"
#include "program/step_table.h"

#include <map>

namespace coda {
namespace {

// Copies steps and their operands into a new program.
class Extract {
 public:
  Extract(const Program& from, const std::string& name) : from_(from) { program_.name = name; }

  int add(int step) {
    const auto known = steps_.find(step);
    if (known != steps_.end()) return known->second;
    Step copy = from_.steps[static_cast<size_t>(step)];
    for (int& operand : copy.operands) operand = add(operand);
    for (int* of : program::tensor_fields(copy))
      *of = tensor(from_.tensors[static_cast<size_t>(*of)]);
    return steps_[step] = push(copy);
  }
  // From now on `step` is loaded from the tensor `decl`.
  void load_instead(int step, const TensorDecl& decl) {
    if (steps_.contains(step)) return;
    steps_[step] = push(program::vector_load(tensor(decl), decl.shape));
  }
  void store(int step, const TensorDecl& decl) {
    const int value = add(step);
    push(program::vector_store(tensor(decl), value, decl.shape));
  }
  Program take() { return std::move(program_); }

 private:
  int push(Step step) {
    program_.steps.push_back(std::move(step));
    return static_cast<int>(program_.steps.size()) - 1;
  }
  int tensor(const TensorDecl& decl) {
    for (size_t t = 0; t < program_.tensors.size(); ++t) {
      if (program_.tensors[t].name == decl.name) return static_cast<int>(t);
    }
    program_.tensors.push_back(decl);
    return static_cast<int>(program_.tensors.size()) - 1;
  }

  const Program& from_;
  Program program_;
  std::map<int, int> steps_;
};

}  // namespace

FinalizerParts split_finalizer(const Program& finalizer, const std::string& symbol) {
  const auto count = static_cast<int>(finalizer.steps.size());
  const auto step = [&](int i) -> const Step& { return finalizer.steps[static_cast<size_t>(i)]; };
  const Shape of_rows{Dim(symbol), 1};
  // Values that depend on a single row: computed from row vectors and scalars.
  std::vector<bool> row(static_cast<size_t>(count), false);
  for (int i = 0; i < count; ++i) {
    const Step& s = step(i);
    const bool is_leaf =
        program::is_vector_load(s) || program::is_constant(s) || program::is_size(s);
    bool is_row = is_leaf && (s.shape.is_scalar() || s.shape == of_rows);
    is_row = is_row || (program::is_combination(s) && s.shape == of_rows);
    if (program::is_elementwise(s)) {
      is_row = true;
      for (int o : s.operands) is_row = is_row && row[static_cast<size_t>(o)];
    }
    row[static_cast<size_t>(i)] = is_row;
  }

  FinalizerParts parts;
  Extract first(finalizer, finalizer.name);
  Extract second(finalizer, finalizer.name + ".all_rows");
  std::map<int, TensorDecl> stored;  // row values that are in memory after the first part
  std::vector<int> rest;
  for (int i = 0; i < count; ++i) {
    if (!program::is_effect(step(i))) continue;
    const int value = step(i).operands[0];
    if (row[static_cast<size_t>(value)] && step(i).shape == of_rows) {
      first.add(i);
      stored.emplace(value, finalizer.tensors[static_cast<size_t>(step(i).tensor())]);
    } else {
      rest.push_back(i);
    }
  }
  // Row values that the rest needs, which it loads.
  std::vector<bool> needed(static_cast<size_t>(count), false);
  for (int i = count - 1; i >= 0; --i) {
    bool is_needed = needed[static_cast<size_t>(i)];
    for (int effect : rest) is_needed = is_needed || effect == i;
    const bool crosses = is_needed && row[static_cast<size_t>(i)] && step(i).shape == of_rows &&
                         !program::is_vector_load(step(i));
    if (!is_needed) continue;
    if (!crosses) {
      for (int o : step(i).operands) needed[static_cast<size_t>(o)] = true;
      continue;
    }
    if (!stored.contains(i)) {
      const TensorDecl decl{finalizer.name + ".rows" + std::to_string(i), of_rows};
      first.store(i, decl);
      stored.emplace(i, decl);
      parts.crossing.push_back(decl);
    }
    second.load_instead(i, stored.at(i));
  }
  for (int effect : rest) second.add(effect);
  parts.of_rows = first.take();
  if (!rest.empty()) parts.rest = second.take();
  return parts;
}

}  // namespace coda
