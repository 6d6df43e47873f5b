// SPDX-License-Identifier: Apache-2.0
// Steps that change which columns a value has: pairs, groups, and the selection of a column.
#include <cmath>

#include "base/columns.h"
#include "coda/error.h"
#include "program/evaluation.h"
#include "program/lifting.h"
#include "program/shape_rule.h"
#include "program/step_table.h"

namespace coda::program {
namespace {

// ---- pairs ----

Sizes shape_of_split_pair(const ShapeRule& r) {
  const Dim columns = r.columns_of_operand();
  const std::optional<Dim> half = columns.half();
  if (!half) {
    r.wrong(columns.text() +
            " columns cannot be halved for all sizes; write the width as a multiple, such as 2*I");
  }
  return r.is_checked({r.operand(0).rows, r.sizes.known(*half)},
                      [] { return std::string("a member of its pairs has shape "); });
}

Sizes shape_of_merge_pairs(const ShapeRule& r) {
  if (!r.sizes.unify(r.operand(0), r.operand(1))) {
    r.wrong("members of pairs have one shape, not " + r.operand_texts());
  }
  return r.is({r.operand(0).rows, r.sizes.known(2 * r.columns_of_operand())},
              [&](const auto&, const auto& given) {
                return "members " + r.operand_texts() + " do not merge to " + given;
              });
}

void check_pairs(const StepCheck& c, const Dim& wide) {
  c.check(c.step.group() != Dim(0) && has_pairs(wide, c.step.group()), [&] {
    return "pairs within groups of " + c.step.group().text() + " columns do not divide " +
           wide.text() +
           " columns for all sizes; the group must be even and divide the width (write the width "
           "as a multiple, such as 2*I)";
  });
}

void check_split_pair(const StepCheck& c) {
  check_pairs(c, c.operand(0).shape.cols);
  c.check(c.step.which() == 0 || c.step.which() == 1,
          [&] { return "a pair has members 0 and 1, not " + std::to_string(c.step.which()); });
}

StepValue evaluate_split_pair(const Evaluation& e) {
  const StepValue& x = e.operand(0);
  const int64_t group = e.size(e.step().group());
  return {x.rows, x.cols / 2,
          [&](int64_t i, int64_t j) { return x.at(i, pair_column(j, e.step().which(), group)); }};
}

StepValue evaluate_merge_pairs(const Evaluation& e) {
  const int64_t group = e.size(e.step().group());
  StepValue result(e.operand(0).rows, 2 * e.operand(0).cols);
  for (int which = 0; which < 2; ++which) {
    const StepValue& x = e.operand(which);
    for (int64_t i = 0; i < x.rows; ++i) {
      for (int64_t j = 0; j < x.cols; ++j) result.at(i, pair_column(j, which, group)) = x.at(i, j);
    }
  }
  return result;
}

// ---- groups ----

Sizes shape_of_reduce_group(const ShapeRule& r) {
  const Dim columns = r.columns_of_operand();
  const Dim& group = r.step.group();
  const std::optional<Dim> groups = group == Dim(0) ? std::nullopt : quotient(columns, group);
  if (!groups) {
    r.wrong("groups of " + group.text() + " columns do not divide " + columns.text() +
            " columns for all sizes");
  }
  return r.is_checked({r.operand(0).rows, r.sizes.known(*groups)},
                      [&] { return r.operand_texts() + " has groups of shape "; });
}

Sizes shape_of_repeat_group(const ShapeRule& r) {
  const Dim groups = r.columns_of_operand();
  const Dim& group = r.step.group();
  if (!groups.is_constant() && !group.is_constant()) {
    r.wrong(groups.text() + " groups of " + group.text() +
            " columns have no linear size; one of the two must be a number");
  }
  const Dim columns = group.is_constant() ? group.constant() * groups : groups.constant() * group;
  return r.is_checked({r.operand(0).rows, r.sizes.known(columns)},
                      [] { return std::string("its groups' columns repeated have shape "); });
}

StepValue evaluate_reduce_group(const Evaluation& e) {
  const StepValue& x = e.operand(0);
  const int64_t group = e.size(e.step().group());
  StepValue result(x.rows, x.cols / group);
  for (int64_t i = 0; i < x.rows; ++i) {
    for (int64_t j = 0; j < x.cols; ++j) result.at(i, j / group) += x.at(i, j);
  }
  return result;
}

StepValue evaluate_abs_max_group(const Evaluation& e) {
  const StepValue& x = e.operand(0);
  const int64_t group = e.size(e.step().group());
  StepValue result(x.rows, x.cols / group);
  for (int64_t i = 0; i < x.rows; ++i) {
    for (int64_t j = 0; j < x.cols; ++j) {
      double& largest = result.at(i, j / group);
      const double magnitude = std::fabs(x.at(i, j));
      if (!(magnitude <= largest) && !std::isnan(largest)) largest = magnitude;
    }
  }
  return result;
}

StepValue evaluate_repeat_group(const Evaluation& e) {
  const StepValue& x = e.operand(0);
  const int64_t group = e.size(e.step().group());
  return {x.rows, x.cols * group, [&](int64_t i, int64_t j) { return x.at(i, j / group); }};
}

Value lift_abs_max_group(const Lifting& l) {
  throw Error(std::string(name_of(l.step.kind())) +
              " has no operation of a graph: scales are found where a program says so, and "
              "have no gradient");
}

// ---- select_column ----

Sizes shape_of_select_column(const ShapeRule& r) {
  if (!r.sizes.unify(r.operand(0).rows, r.operand(1).rows)) {
    r.wrong("one column a row is selected: " + r.sizes.text(r.operand(0)) +
            " needs an index of as many rows, not " + r.sizes.text(r.operand(1)));
  }
  return r.is_checked({r.operand(0).rows, r.sizes.known(1)}, [&] {
    return "selecting from " + r.sizes.text(r.operand(0)) + " by an index of shape " +
           r.sizes.text(r.operand(1)) + " gives ";
  });
}

void check_select_column(const StepCheck& c) {
  const Step& index = c.operand(1);
  c.check(index.kind() == StepKind::load_per_row &&
              c.program.tensors[index.tensor()].dtype == DType::i32,
          [&] {
            return std::string(
                "the column to select must be a per-row load of an i32 tensor, such as "
                "per_row(target[M]:i32)");
          });
}

StepValue evaluate_select_column(const Evaluation& e) {
  const StepValue& x = e.operand(0);
  return {x.rows, 1, [&](int64_t i, int64_t) {
            const double j = e.operand(1).at(i, 0);
            const bool is_inside = j >= 0 && j < static_cast<double>(x.cols);
            return is_inside ? x.at(i, static_cast<int64_t>(j)) : 0;
          }};
}

constexpr StepInfo kColumnRows[] = {
    {.kind = StepKind::split_pair,
     .name = "split_pair",
     .group = StepGroup::columns,
     .words = {"split_pairs"},
     .arguments = {Argument::value, Argument::pair_group},
     .columns = ColumnChange::split,
     .shape = shape_of_split_pair,
     .check = check_split_pair,
     .evaluate = evaluate_split_pair,
     .lift =
         [](const Lifting& l) { return split_pair(l.operand(0), l.step.group(), l.step.which()); }},
    {.kind = StepKind::merge_pairs,
     .name = "merge_pairs",
     .group = StepGroup::columns,
     .words = {"merge_pairs"},
     .arguments = {Argument::value, Argument::value, Argument::pair_group},
     .value_name = "merged",
     .columns = ColumnChange::merged,
     .shape = shape_of_merge_pairs,
     .check = [](const StepCheck& c) { check_pairs(c, c.step.shape.cols); },
     .evaluate = evaluate_merge_pairs,
     .lift =
         [](const Lifting& l) { return merge_pairs(l.operand(0), l.operand(1), l.step.group()); }},
    {.kind = StepKind::reduce_group,
     .name = "reduce_group",
     .group = StepGroup::columns,
     .words = {"reduce_group"},
     .arguments = {Argument::value, Argument::group},
     .columns = ColumnChange::summed,
     .shape = shape_of_reduce_group,
     .evaluate = evaluate_reduce_group,
     .error_scale = errors_of_value,
     .lift = [](const Lifting& l) { return group_sum(l.operand(0), l.step.group()); }},
    {.kind = StepKind::group_abs_max,
     .name = "abs_max_group",
     .group = StepGroup::columns,
     .words = {"abs_max_group"},
     .arguments = {Argument::value, Argument::group},
     .columns = ColumnChange::summed,
     .shape = shape_of_reduce_group,
     .evaluate = evaluate_abs_max_group,
     .lift = lift_abs_max_group},
    {.kind = StepKind::repeat_group,
     .name = "repeat_group",
     .group = StepGroup::columns,
     .words = {"repeat_group"},
     .arguments = {Argument::value, Argument::group},
     .columns = ColumnChange::repeated,
     .shape = shape_of_repeat_group,
     .evaluate = evaluate_repeat_group,
     .lift = [](const Lifting& l) { return group_repeat(l.operand(0), l.step.group()); }},
    {.kind = StepKind::select_column,
     .name = "select_column",
     .group = StepGroup::selection,
     .words = {"select_column"},
     .arguments = {Argument::value, Argument::value},
     .shape = shape_of_select_column,
     .check = check_select_column,
     .evaluate = evaluate_select_column,
     .lift = [](const Lifting& l) { return select_column(l.operand(0), l.operand(1)); }},
};

}  // namespace

std::span<const StepInfo> column_steps() { return kColumnRows; }

}  // namespace coda::program
