// SPDX-License-Identifier: Apache-2.0
// Steps of finalizers, which have no tiles: combining partials, reducing and transposing vectors.
#include <algorithm>

#include "coda/builders.h"
#include "coda/error.h"
#include "program/evaluation.h"
#include "program/lifting.h"
#include "program/shape_rule.h"
#include "program/step_table.h"

namespace coda::program {
namespace {

// ---- combine ----

Sizes shape_of_combine(const ShapeRule& r) {
  const bool columns = r.program.tensors[r.step.tensor()].kind == TensorKind::column_partial;
  const int one = r.sizes.known(1);
  return r.is_checked(columns ? Sizes{one, r.tensor().cols} : Sizes{r.tensor().rows, one},
                      [&] { return "combining '" + r.name() + "' gives "; });
}

void check_combine(const StepCheck& c) {
  c.check_partial_tensor(c.tensor().kind == TensorKind::dense ? TensorKind::row_partial
                                                              : c.tensor().kind);
  const PartialInfo& kind = info(c.step.partial());
  const bool is_both = c.step.lane() == kBothResults && !kind.both.empty();
  c.check(is_both || (c.step.lane() >= 0 && c.step.lane() < kind.lanes), [&] {
    return "a " + std::string(kind.name) + " partial has no result " +
           std::to_string(c.step.lane());
  });
}

StepValue evaluate_combine(const Evaluation& e) {
  const Step& s = e.step();
  const TensorDecl& decl = e.tensor();
  const StepValue partials = e.input(s.tensor());
  const bool rows = decl.kind == TensorKind::row_partial;
  const int64_t reduced = e.size(rows ? decl.shape.cols : decl.shape.rows);
  const int64_t lines = e.size(rows ? decl.shape.rows : decl.shape.cols);
  const int64_t count = partial_spans(reduced);
  StepValue result(rows ? lines : 1, rows ? 1 : lines);
  for (int64_t line = 0; line < lines; ++line) {
    PartialLanes merged;
    for (int64_t p = 0; p < count; ++p) {
      PartialLanes partial = {};
      for (int lane = 0; lane < decl.lanes; ++lane) {
        partial[static_cast<size_t>(lane)] =
            rows ? partials.at(lane * lines + line, p) : partials.at(lane * count + p, line);
      }
      const int64_t before = p * kPartialSpan;
      const auto own = static_cast<double>(std::min(kPartialSpan, reduced - before));
      merged = p == 0 ? partial
                      : info(s.partial()).merge(merged, static_cast<double>(before), partial, own);
    }
    result.values[static_cast<size_t>(line)] = result_of(s.partial(), merged, s.lane());
  }
  return result;
}

Value lift_combine(const Lifting& l) {
  const TensorDecl& t = l.program.tensors[l.step.tensor()];
  const auto found = l.tensors.reduced.find(t.name);
  require(found != l.tensors.reduced.end(),
          "program '" + l.program.name + "': partial '" + t.name +
              "' is made by another program: give that one's file before this one's");
  found->second.is_combined = true;
  const Value x = found->second.value;
  const bool rows = t.kind == TensorKind::row_partial;
  const PartialInfo& kind = info(l.step.partial());
  const auto reduced = [&](PartialKind k) { return rows ? row_reduce(x, k) : col_reduce(x, k); };
  if (l.step.lane() == kind.value) return reduced(l.step.partial());
  if (kind.needs_count) {
    return mul(reduced(PartialKind::sum),
               l.graph.reciprocal_dim(rows ? x.shape().cols : x.shape().rows));
  }
  // What an entropy has of a log-sum-exp, and whose results those are.
  if (l.step.lane() == kBothResults) return reduced(PartialKind::log_sum_exp);
  const Value largest = reduced(PartialKind::max);
  return l.step.lane() == 0 ? largest : sub(reduced(PartialKind::log_sum_exp), largest);
}

// ---- vectors ----

// A size is unknown only in the assembler.
void check_is_vector(const StepCheck& c) {
  const Shape& shape = c.operand(0).shape;
  c.check(shape.is_per_row() || shape.is_per_column(),
          [&] { return "its operand has shape " + shape.text() + ", which is no vector"; });
}

std::string its_value() { return "its value has shape "; }

constexpr StepInfo kFinalizerRows[] = {
    {.kind = StepKind::combine,
     .name = "combine",
     .group = StepGroup::finalizer,
     .words = {"combine_rows", "combine_columns"},
     .arguments = {Argument::partial, Argument::result},
     .shape = shape_of_combine,
     .check = check_combine,
     .evaluate = evaluate_combine,
     .error_scale = errors_of_value,
     .lift = lift_combine},
    {.kind = StepKind::reduce_vector,
     .name = "reduce_vector",
     .group = StepGroup::finalizer,
     .words = {"reduce_vector"},
     .arguments = {Argument::value},
     .shape = [](const ShapeRule& r) { return r.is_checked(r.sizes.known(Shape{}), its_value); },
     .check = check_is_vector,
     .evaluate =
         [](const Evaluation& e) {
           StepValue result(1, 1);
           for (double x : e.operand(0).values) result.at(0, 0) += x;
           return result;
         },
     .error_scale = errors_of_value,
     .lift =
         [](const Lifting& l) {
           const Value v = l.operand(0);
           return v.shape().is_per_row() ? col_sum(v) : col_sum(transpose(v));
         }},
    {.kind = StepKind::transpose_vector,
     .name = "transpose_vector",
     .group = StepGroup::finalizer,
     .words = {"transpose_vector"},
     .arguments = {Argument::value},
     .shape =
         [](const ShapeRule& r) {
           return r.is_checked({r.operand(0).cols, r.operand(0).rows}, its_value);
         },
     .check = check_is_vector,
     .evaluate =
         [](const Evaluation& e) {
           StepValue result = e.operand(0);
           std::swap(result.rows, result.cols);
           return result;
         },
     .lift = [](const Lifting& l) { return transpose(l.operand(0)); }},
};

}  // namespace

std::span<const StepInfo> finalizer_steps() { return kFinalizerRows; }

}  // namespace coda::program
