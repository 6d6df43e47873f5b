// SPDX-License-Identifier: Apache-2.0
// Vectors and scalars that are equal for all tiles: loads, constants, column numbers.
#include <cmath>

#include "program/evaluation.h"
#include "program/lifting.h"
#include "program/shape_rule.h"
#include "program/step_table.h"

namespace coda::program {
namespace {

Sizes shape_of_load_vector(const ShapeRule& r) {
  if (!r.step.repeat().is(1)) {
    return r.is_checked({r.tensor().rows, repeated_columns(r)},
                        [&] { return "'" + r.name() + "' repeated has shape "; });
  }
  return r.is(r.tensor(), [&](const auto& expected, const auto& given) {
    return "its shape " + given + " is not that of '" + r.name() + "', " + expected;
  });
}

void check_load_vector(const StepCheck& c) {
  const TensorDecl& t = c.tensor();
  const char* need = c.step.kind() == StepKind::load_per_row      ? "[M, 1]"
                     : c.step.kind() == StepKind::load_per_column ? "[1, N]"
                                                                  : "[1, 1]";
  check_repeat(c);
  c.check(t.shape.is_vector() && c.step.kind() == load_kind(t.shape), [&] {
    return "'" + t.name + "' has shape " + t.shape.text() + "; " +
           std::string(name_of(c.step.kind())) + " needs " + need;
  });
}

StepValue evaluate_load_vector(const Evaluation& e) {
  StepValue stored = e.input(e.step().tensor());
  if (e.step().repeat().is(1)) return stored;
  return {1, e.size(e.step().shape.cols),
          [&](int64_t, int64_t j) { return stored.at(0, j % stored.cols); }};
}
Value lift_load_vector(const Lifting& l) {
  return repeat_columns(l.read(l.step.tensor()), l.step.repeat());
}

constexpr StepInfo load(StepKind kind, std::string_view name, std::string_view word,
                        Argument tensor, Argument options = Argument::none) {
  return {.kind = kind,
          .name = name,
          .group = StepGroup::vector,
          .words = {word},
          .arguments = {tensor, options},
          .shape = shape_of_load_vector,
          .check = check_load_vector,
          .evaluate = evaluate_load_vector,
          .lift = lift_load_vector};
}

constexpr StepInfo kVectorRows[] = {
    load(StepKind::load_per_row, "load_per_row", "per_row", Argument::per_row),
    load(StepKind::load_per_column, "load_per_column", "per_column", Argument::per_column,
         Argument::repeat),
    load(StepKind::load_scalar, "load_scalar", "scalar", Argument::scalar),
    {.kind = StepKind::constant,
     .name = "constant",
     .group = StepGroup::vector,
     .value_name = "c",
     .shape =
         [](const ShapeRule& r) {
           return r.is(r.sizes.known(Shape{}), [](const auto&, const auto&) {
             return std::string("a constant has shape [1, 1]");
           });
         },
     .check =
         [](const StepCheck& c) {
           c.check(!std::isnan(c.step.number()),
                   [] { return std::string("a constant is not NaN"); });
         },
     .evaluate =
         [](const Evaluation& e) {
           return StepValue(1, 1, [&](int64_t, int64_t) { return e.step().number(); });
         },
     .lift = [](const Lifting& l) { return l.graph.constant(l.step.number()); }},
    {.kind = StepKind::size,
     .name = "size",
     .group = StepGroup::vector,
     .words = {"size"},
     .arguments = {Argument::size},
     .value_name = "count",
     .shape =
         [](const ShapeRule& r) {
           return r.is(r.sizes.known(Shape{}), [](const auto&, const auto&) {
             return std::string("a size is a number, of shape [1, 1]");
           });
         },
     .evaluate =
         [](const Evaluation& e) {
           return StepValue(1, 1, [&](int64_t, int64_t) {
             return static_cast<double>(e.size(e.step().size()));
           });
         },
     .lift =
         [](const Lifting& l) {
           const Dim& size = l.step.size();
           if (size.is_constant()) return l.graph.constant(static_cast<double>(size.constant()));
           return recip(l.graph.reciprocal_dim(size));
         }},
    {.kind = StepKind::column_index,
     .name = "column_index",
     .group = StepGroup::vector,
     .words = {"column_index"},
     .arguments = {Argument::columns},
     .value_name = "column",
     .shape =
         [](const ShapeRule& r) {
           const std::optional<Dim> columns =
               r.given != nullptr ? std::optional(r.given->cols) : r.columns;
           const Sizes result{r.sizes.known(1),
                              columns ? r.sizes.known(*columns) : r.sizes.unknown()};
           return r.is(result, [](const auto&, const auto& given) {
             return "a column index has shape [1, N], not " + given;
           });
         },
     .check =
         [](const StepCheck& c) {
           c.check(c.step.shape.is_per_column(),
                   [&] { return "a column index has shape [1, N], not " + c.step.shape.text(); });
         },
     .evaluate =
         [](const Evaluation& e) {
           return StepValue(1, e.size(e.step().shape.cols),
                            [](int64_t, int64_t j) { return static_cast<double>(j); });
         },
     .lift = [](const Lifting& l) { return l.graph.column_index(l.step.shape.cols); }},
};

}  // namespace

std::span<const StepInfo> vector_steps() { return kVectorRows; }

}  // namespace coda::program
