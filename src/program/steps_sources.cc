// SPDX-License-Identifier: Apache-2.0
// Sources of tiles: a GEMM, or a tensor in memory.
#include <algorithm>
#include <cmath>
#include <string>

#include "base/columns.h"
#include "coda/builders.h"
#include "coda/error.h"
#include "program/evaluation.h"
#include "program/lifting.h"
#include "program/shape_rule.h"
#include "program/step_table.h"

namespace coda::program {
namespace {

using namespace std::string_literals;

// ---- gemm ----

Sizes shape_of_gemm(const ShapeRule& r) {
  if (r.step.segments().empty()) r.wrong("a gemm has at least one segment");
  std::optional<Sizes> result;
  for (const GemmSegment& segment : r.step.segments()) {
    const Sizes a = r.tensors[segment.a];
    const Sizes b = r.tensors[segment.b];
    const TensorDecl& a_decl = r.program.tensors[segment.a];
    const TensorDecl& b_decl = r.program.tensors[segment.b];
    const Dim& k_a = *r.sizes.at(segment.transpose_a ? a.rows : a.cols);
    const Dim& k_b = *r.sizes.at(segment.transpose_b ? b.cols : b.rows);
    if (k_a != k_b) {
      r.wrong("'" + a_decl.name + "' and '" + b_decl.name +
              "' do not agree along the contraction: " + k_a.text() + " and " + k_b.text());
    }
    const Sizes product = r.is_checked(
        {segment.transpose_a ? a.cols : a.rows, segment.transpose_b ? b.rows : b.cols}, [&] {
          return "'" + a_decl.name + "' " + r.sizes.text(a) +
                 (segment.transpose_a ? " transposed" : "") + " and '" + b_decl.name + "' " +
                 r.sizes.text(b) + (segment.transpose_b ? " transposed" : "") + " give ";
        });
    if (!result) result = product;
    if (*r.sizes.at(result->rows) != *r.sizes.at(product.rows) ||
        *r.sizes.at(result->cols) != *r.sizes.at(product.cols)) {
      r.wrong("segments of one gemm have different shapes: " + r.sizes.text(*result) + " and " +
              r.sizes.text(product));
    }
  }
  return *result;
}

void check_tile(const StepCheck& c) {
  c.check(c.step.shape.is_tensor(), [&] {
    return "a tile of shape " + c.step.shape.text() +
           " is a vector; load it as one, or write a symbol that is 1 when the program runs";
  });
}

// Scale blocks are along the rows in memory, because tensor cores read rows of 8-bit operands.
void check_scales(const StepCheck& c, int operand, int scales, bool has_k_along_rows) {
  if (scales < 0) return;
  const TensorDecl& t = c.program.tensors[operand];
  const TensorDecl& s = c.program.tensors[scales];
  const std::string product = "the product of '" + t.name + "' " + t.shape.text();
  c.check(size_of(t.dtype) == 1 && is_floating(t.dtype), [&] {
    return "'" + t.name + "' is " + std::string(coda::name_of(t.dtype)) +
           "; only operands of e4m3 and e5m2 are scaled";
  });
  c.check(has_k_along_rows, [&] {
    return product + " contracts along its columns in memory; scales are those of each " +
           std::to_string(kScaleSpan) +
           " elements along a row: store it transposed, and scale that";
  });
  c.check(s.dtype == DType::f32, [&] {
    return "scales '" + s.name + "' are " + std::string(coda::name_of(s.dtype)) + "; they are f32";
  });
  const std::string span_text = std::to_string(kScaleSpan);
  c.check(quotient(t.shape.cols, kScaleSpan).has_value(), [&] {
    return product + " has " + t.shape.cols.text() + " columns, no multiple of " + span_text +
           " for all sizes; write the width as a multiple, such as " + span_text +
           "*B, or use one scale for the tensor, as a factor of the product";
  });
  const Shape wanted{t.shape.rows, *quotient(t.shape.cols, kScaleSpan)};
  const bool is_of_squares =
      s.shape.cols == wanted.cols && kScaleSpan * s.shape.rows == t.shape.rows;
  c.check(s.shape == wanted || is_of_squares, [&] {
    const std::optional<Dim> rows = quotient(t.shape.rows, kScaleSpan);
    return product + " has scales of shape " + wanted.text() +
           (rows ? " or " + Shape{*rows, wanted.cols}.text() : "") + ", '" + s.name + "' is " +
           s.shape.text();
  });
}

void check_gemm(const StepCheck& c) {
  check_tile(c);
  for (const GemmSegment& segment : c.step.segments()) {
    check_scales(c, segment.a, segment.scales_a, !segment.transpose_a);
    check_scales(c, segment.b, segment.scales_b, segment.transpose_b);
    for (int t : {segment.a, segment.b}) {
      const TensorDecl& decl = c.program.tensors[t];
      c.check(is_floating(decl.dtype), [&] {
        return "gemm operand '" + decl.name + "' is " + std::string(coda::name_of(decl.dtype)) +
               "; products are of floats";
      });
    }
  }
}

int64_t depth_of(const Evaluation& e, const GemmSegment& segment) {
  const Shape& a = e.program.tensors[segment.a].shape;
  return e.size(segment.transpose_a ? a.rows : a.cols);
}

// An operand multiplied by its scales.
StepValue operand_of(const Evaluation& e, int tensor, int scales) {
  StepValue x = e.input(tensor);
  if (scales < 0) return x;
  const StepValue s = e.input(scales);
  for (int64_t i = 0; i < x.rows; ++i) {
    for (int64_t j = 0; j < x.cols; ++j) {
      x.at(i, j) *= s.at(s.rows == x.rows ? i : i / kScaleSpan, j / kScaleSpan);
    }
  }
  return x;
}

// `squared`: sums the squares of the terms.
StepValue product(const Evaluation& e, bool squared) {
  StepValue result(e.size(e.step().shape.rows), e.size(e.step().shape.cols));
  for (const GemmSegment& segment : e.step().segments()) {
    StepValue a = operand_of(e, segment.a, segment.scales_a);
    StepValue b = operand_of(e, segment.b, segment.scales_b);
    if (squared) {
      for (StepValue* m : {&a, &b})
        for (double& x : m->values) x *= x;
    }
    const int64_t depth = depth_of(e, segment);
    for (int64_t i = 0; i < result.rows; ++i) {
      for (int64_t j = 0; j < result.cols; ++j) {
        for (int64_t k = 0; k < depth; ++k) {
          result.at(i, j) += (segment.transpose_a ? a.at(k, i) : a.at(i, k)) *
                             (segment.transpose_b ? b.at(j, k) : b.at(k, j));
        }
      }
    }
  }
  return result;
}

StepValue evaluate_gemm(const Evaluation& e) { return product(e, false); }

// The errors of a sum of K terms with random signs are those of K partial sums, the last of which
// is as large as the result: together one unit of |terms| sqrt(K / 2).
StepValue error_scale_of_gemm(const Evaluation& e, const StepValue&) {
  StepValue scale = product(e, true);
  int64_t depth = 0;
  for (const GemmSegment& segment : e.step().segments()) depth += depth_of(e, segment);
  const double steps = std::sqrt(static_cast<double>(depth) / 2);
  for (double& x : scale.values) x = steps * std::sqrt(x);
  return scale;
}

Value lift_gemm(const Lifting& l) {
  std::vector<MatmulOperands> segments;
  for (const GemmSegment& segment : l.step.segments()) {
    require(
        !segment.is_scaled(),
        "a product whose operands have scales has no operation of a graph: scales are found where "
        "a program says so, and have no gradient");
    segments.push_back(
        {l.read(segment.a), l.read(segment.b), {segment.transpose_a, segment.transpose_b}});
  }
  return matmul(segments);
}

// ---- load_tile ----

Sizes shape_of_load_tile(const ShapeRule& r) {
  Sizes result = r.tensor();
  if (!r.step.repeat().is(1)) result.cols = repeated_columns(r);
  if (r.step.row_index() >= 0) result.rows = r.tensors[r.step.row_index()].rows;
  return r.is_checked(result, [&] { return "the tile of '" + r.name() + "' has shape "; });
}

void check_load_tile(const StepCheck& c) {
  check_tile(c);
  if (c.step.row_index() >= 0) {
    const TensorDecl& index = c.program.tensors[c.step.row_index()];
    c.check(index.dtype == DType::i32 && index.shape.cols.is(1), [&] {
      return "row index '" + index.name + "' must be i32 of shape [M, 1], it is " +
             std::string(coda::name_of(index.dtype)) + " of shape " + index.shape.text();
    });
  }
  check_repeat(c);
}

StepValue evaluate_load_tile(const Evaluation& e) {
  const int row_index = e.step().row_index();
  const StepValue stored = e.input(e.step().tensor());
  const StepValue index = row_index >= 0 ? e.input(row_index) : StepValue();
  const auto row_of = [&](int64_t i) {
    if (row_index < 0) return i;
    const auto row = static_cast<int64_t>(index.at(i, 0));
    require(row >= 0 && row < stored.rows,
            "row " + std::to_string(row) + " of tensor '" + e.tensor().name + "', which has " +
                std::to_string(stored.rows) + " rows, is asked for by '" +
                e.program.tensors[row_index].name + "'");
    return row;
  };
  StepValue result(e.size(e.step().shape.rows), e.size(e.step().shape.cols));
  for (int64_t i = 0; i < result.rows; ++i) {
    const int64_t row = row_of(i);
    for (int64_t j = 0; j < result.cols; ++j) result.at(i, j) = stored.at(row, j % stored.cols);
  }
  return result;
}

Value lift_load_tile(const Lifting& l) {
  Value tile = l.read(l.step.tensor());
  if (l.step.row_index() >= 0) tile = gather_rows(tile, l.read(l.step.row_index()));
  return repeat_columns(tile, l.step.repeat());
}

constexpr StepInfo kSourceRows[] = {
    {.kind = StepKind::gemm,
     .name = "gemm",
     .group = StepGroup::source,
     .words = {"gemm"},
     .arguments = {Argument::segments},
     .value_name = "acc",
     .shape = shape_of_gemm,
     .check = check_gemm,
     .evaluate = evaluate_gemm,
     .error_scale = error_scale_of_gemm,
     .lift = lift_gemm},
    {.kind = StepKind::load_tile,
     .name = "load_tile",
     .group = StepGroup::source,
     .words = {"tile"},
     .arguments = {Argument::tile, Argument::tile_options},
     .shape = shape_of_load_tile,
     .check = check_load_tile,
     .evaluate = evaluate_load_tile,
     .lift = lift_load_tile},
};

}  // namespace

std::span<const StepInfo> source_steps() { return kSourceRows; }

}  // namespace coda::program
