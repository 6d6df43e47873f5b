// SPDX-License-Identifier: Apache-2.0
// Steps that store: values, partials of reductions, and largest magnitudes.
#include <algorithm>
#include <cmath>

#include "base/columns.h"
#include "program/evaluation.h"
#include "program/shape_rule.h"
#include "program/step_table.h"

namespace coda::program {
namespace {

Sizes shape_of_effect(const ShapeRule& r) { return r.as_operand(); }

void check_stored_type(const StepCheck& c) {
  c.check(c.tensor().dtype != DType::i32,
          [&] { return "'" + c.tensor().name + "' is i32; values are stored as floats"; });
}

void check_store(const StepCheck& c) {
  const TensorDecl& t = c.tensor();
  c.check(t.shape == c.step.shape, [&] {
    return "'" + t.name + "' has shape " + t.shape.text() + " and the value " + c.step.shape.text();
  });
  check_stored_type(c);
}

StepValue evaluate_store(const Evaluation& e) { return e.stored(e.operand(0), e.tensor().dtype); }

void check_transposed(const StepCheck& c) {
  const TensorDecl& t = c.tensor();
  const Shape transposed{c.step.shape.cols, c.step.shape.rows};
  c.check(t.shape == transposed, [&] {
    return "'" + t.name + "' has shape " + t.shape.text() + " and the value transposed " +
           transposed.text();
  });
  check_stored_type(c);
}

StepValue evaluate_transposed(const Evaluation& e) {
  const StepValue& x = e.operand(0);
  return e.stored({x.cols, x.rows, [&](int64_t i, int64_t j) { return x.at(j, i); }},
                  e.tensor().dtype);
}

void check_maximum(const StepCheck& c) {
  const TensorDecl& t = c.tensor();
  c.check(t.shape.is_scalar() && t.dtype == DType::f32, [&] {
    return "'" + t.name + "' is " + std::string(coda::name_of(t.dtype)) + " " + t.shape.text() +
           "; the largest magnitude is an f32 scalar, [1, 1]";
  });
}

// NaN is above all numbers, as on the backends. If several steps raise one scalar, each continues
// from the previous one.
StepValue evaluate_maximum(const Evaluation& e) {
  StepValue before = e.input(e.step().tensor());
  for (int i = 0; i < e.at; ++i) {
    const Step& other = e.program.steps[static_cast<size_t>(i)];
    if (is_maximum(other) && other.tensor() == e.step().tensor())
      before = e.values[static_cast<size_t>(i)];
  }
  double largest = before.values[0];
  for (const double x : e.operand(0).values) {
    const double magnitude = std::fabs(x);
    if (!(magnitude <= largest)) largest = magnitude;
    if (std::isnan(largest)) break;
  }
  return {1, 1, [&](int64_t, int64_t) { return largest; }};
}

void check_partial(const StepCheck& c) {
  const TensorDecl& t = c.tensor();
  const bool rows = is_row_partial(c.step);
  c.check_partial_tensor(rows ? TensorKind::row_partial : TensorKind::column_partial);
  // The columns of a row partial are base columns, which are checked with the tile spaces.
  c.check(t.shape.rows == c.step.shape.rows && (rows || t.shape.cols == c.step.shape.cols), [&] {
    return "partial '" + t.name + "' is declared for " + t.shape.text() + " and the value has " +
           c.step.shape.text();
  });
}

StepValue evaluate_row_partial(const Evaluation& e) {
  const StepValue& x = e.operand(0);
  const int64_t base = e.size(e.map.spaces[e.map.space[e.at]].shape.cols);
  // For a value of twice the base width, a partial covers both members of its base columns' pairs.
  const Dim& pairing = e.map.pairing[e.at];
  const int64_t group = pairing.is(0) ? 0 : e.size(pairing);
  return {
      info(e.step().partial()).lanes * x.rows, partial_spans(base), [&](int64_t i, int64_t span) {
        const int64_t row = i % x.rows;
        std::vector<double> covered;
        for (int64_t j = span * kPartialSpan; j < std::min(base, (span + 1) * kPartialSpan); ++j) {
          covered.push_back(x.at(row, group == 0 ? j : pair_column(j, 0, group)));
          if (group != 0) covered.push_back(x.at(row, pair_column(j, 1, group)));
        }
        return reduce(e.step().partial(), covered)[static_cast<size_t>(i / x.rows)];
      }};
}

StepValue evaluate_column_partial(const Evaluation& e) {
  const StepValue& x = e.operand(0);
  const int64_t count = partial_spans(x.rows);
  return {info(e.step().partial()).lanes * count, x.cols, [&](int64_t i, int64_t col) {
            const int64_t span = i % count;
            std::vector<double> covered;
            for (int64_t j = span * kPartialSpan; j < std::min(x.rows, (span + 1) * kPartialSpan);
                 ++j)
              covered.push_back(x.at(j, col));
            return reduce(e.step().partial(), covered)[static_cast<size_t>(i / count)];
          }};
}

constexpr StepInfo effect(StepKind kind, std::string_view name, std::string_view word,
                          Argument target, Argument what, Leaves leaves,
                          void (*check)(const StepCheck&),
                          StepValue (*evaluate)(const Evaluation&)) {
  return {.kind = kind,
          .name = name,
          .group = StepGroup::effect,
          .words = {word},
          .arguments = {target, what},
          .leaves = leaves,
          .shape = shape_of_effect,
          .check = check,
          .evaluate = evaluate};
}

using A = Argument;
constexpr StepInfo kEffectRows[] = {
    effect(StepKind::store_tile, "store_tile", "store", A::target, A::value, Leaves::tile,
           check_store, evaluate_store),
    effect(StepKind::store_vector, "store_vector", "store", A::target, A::value, Leaves::vector,
           check_store, evaluate_store),
    effect(StepKind::row_partial, "row_partial", "row_partial", A::target, A::reduction,
           Leaves::row_partial, check_partial, evaluate_row_partial),
    effect(StepKind::column_partial, "column_partial", "column_partial", A::target, A::reduction,
           Leaves::column_partial, check_partial, evaluate_column_partial),
    effect(StepKind::store_transposed, "store_transposed", "store_transposed", A::transposed_target,
           A::value, Leaves::transposed_tile, check_transposed, evaluate_transposed),
    effect(StepKind::abs_max_into, "abs_max_into", "abs_max_into", A::scalar_target, A::value,
           Leaves::maximum, check_maximum, evaluate_maximum),
};

}  // namespace

std::span<const StepInfo> effect_steps() { return kEffectRows; }

}  // namespace coda::program
