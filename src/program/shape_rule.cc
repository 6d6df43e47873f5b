// SPDX-License-Identifier: Apache-2.0
// Implements the union-find of sizes and the checks that several kinds share.
#include "program/shape_rule.h"

#include <utility>

#include "base/columns.h"
#include "program/step_table.h"

namespace coda::program {

int SizeSet::root(int node) const {
  while (nodes_[node].parent != node) node = nodes_[node].parent;
  return node;
}

int SizeSet::known(const Dim& size) {
  nodes_.push_back({.parent = static_cast<int>(nodes_.size()), .size = size});
  return nodes_.back().parent;
}

int SizeSet::unknown() {
  nodes_.push_back({.parent = static_cast<int>(nodes_.size()), .size = std::nullopt});
  return nodes_.back().parent;
}

bool SizeSet::unify(int a, int b) {
  a = root(a);
  b = root(b);
  if (a == b) return true;
  if (nodes_[a].size && nodes_[b].size) {
    if (*nodes_[a].size != *nodes_[b].size) return false;
  } else if (is_unit(a) || is_unit(b)) {
    // An unknown size is the length of a vector or a side of a tile, never a unit dimension.
    return false;
  }
  // The smaller set is attached to the larger one, so that paths stay short for any text.
  if (nodes_[a].members > nodes_[b].members) std::swap(a, b);
  nodes_[a].parent = b;
  nodes_[b].members += nodes_[a].members;
  if (!nodes_[b].size) nodes_[b].size = nodes_[a].size;
  return true;
}

std::string SizeSet::text(Sizes sizes) const {
  const auto one = [&](int node) { return at(node) ? at(node)->text() : std::string("?"); };
  return "[" + one(sizes.rows) + ", " + one(sizes.cols) + "]";
}

Dim ShapeRule::columns_of_operand() const {
  const std::optional<Dim>& size = sizes.at(operand(0).cols);
  if (!size) {
    wrong(std::string(info(step.kind()).words[0]) +
          " needs to know the columns of its operand here; write the shape where the tensor is "
          "loaded");
  }
  return *size;
}

std::string ShapeRule::operand_texts() const {
  std::string list;
  for (int o : step.operands) list += (list.empty() ? "" : " and ") + sizes.text(values[o]);
  return list;
}

Sizes ShapeRule::as_operand() const {
  return is(operand(0), [](const auto& expected, const auto& given) {
    return "its shape " + given + " is not its operand's, " + expected;
  });
}

int repeated_columns(const ShapeRule& r) {
  const Dim& repeat = r.step.repeat();
  if (repeat.is_constant() && repeat.constant() < 1) r.wrong("columns are repeated at least once");
  const Dim& stored = *r.sizes.at(r.tensor().cols);
  const std::optional<Dim> columns = product(repeat, stored);
  if (!columns) {
    r.wrong(stored.text() + " columns repeated " + repeat.text() +
            " times have no linear size; one of the two must be a number");
  }
  return r.sizes.known(*columns);
}

void check_repeat(const StepCheck& c) {
  constexpr int64_t kMostRepeats = 1024;  // as in repeat_columns, to which a load is lifted
  const Dim& repeat = c.step.repeat();
  c.check(!repeat.is_constant() || repeat.constant() <= kMostRepeats, [&] {
    return "columns repeated " + repeat.text() + " times, where 1 to " +
           std::to_string(kMostRepeats) + " are supported";
  });
}

void StepCheck::check_partial_tensor(TensorKind kind) const {
  const TensorDecl& t = tensor();
  check(t.kind == kind, [&] {
    return "tensor '" + t.name + "' is not declared as a " +
           (kind == TensorKind::row_partial ? "row" : "column") + " partial";
  });
  const PartialInfo& partial = info(step.partial());
  check(t.lanes == partial.lanes, [&] {
    return "a " + std::string(partial.name) + " partial has " + std::to_string(partial.lanes) +
           " lanes, '" + t.name + "' has " + std::to_string(t.lanes);
  });
}

}  // namespace coda::program
