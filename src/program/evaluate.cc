// SPDX-License-Identifier: Apache-2.0
// Evaluates each step as a whole matrix of doubles.
#include "program/evaluate.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "base/columns.h"
#include "coda/error.h"
#include "coda/float16.h"
#include "program/tile_map.h"
#include "program/vocabulary.h"

namespace coda::program {
namespace {

struct Matrix {
  int64_t rows = 0;
  int64_t cols = 0;
  std::vector<double> values;

  Matrix() = default;
  Matrix(int64_t rows, int64_t cols) : rows(rows), cols(cols), values(rows * cols) {}
  double& at(int64_t i, int64_t j) { return values[i * cols + j]; }
  double at(int64_t i, int64_t j) const { return values[i * cols + j]; }
};

double round_to(double value, DType type) {
  switch (type) {
    case DType::f32: return static_cast<float>(value);
    case DType::bf16: return float_from_bf16(bf16_from_float(static_cast<float>(value)));
    case DType::f16: return float_from_f16(f16_from_float(static_cast<float>(value)));
    default: return value;
  }
}

class Evaluator {
 public:
  Evaluator(const Program& program, const DimValues& sizes, const TensorValues& inputs,
            const EvaluateOptions& options)
      : program_(program),
        sizes_(sizes),
        inputs_(inputs),
        options_(options),
        random_(options.fp32_errors),
        map_(map_tiles(program)) {}

  TensorValues run() {
    for (size_t i = 0; i < program_.steps.size(); ++i) {
      values_.push_back(value_of(static_cast<int>(i)));
      if (options_.fp32_errors != 0) add_errors(step(static_cast<int>(i)), values_.back());
    }
    return std::move(outputs_);
  }

 private:
  const Step& step(int i) const { return program_.steps[i]; }
  int64_t size(const Dim& dim) const { return dim.evaluate(sizes_); }
  const Matrix& operand(const Step& s, size_t index) const { return values_[s.operands[index]]; }

  Matrix input(int tensor) const {
    const TensorDecl& decl = program_.tensors[tensor];
    const auto [rows, cols] = physical_shape(decl, sizes_);
    const auto found = inputs_.find(decl.name);
    require(found != inputs_.end(),
            "program '" + program_.name + "' needs a value of tensor '" + decl.name + "'");
    require(static_cast<int64_t>(found->second.size()) == rows * cols,
            "tensor '" + decl.name + "' has " + std::to_string(found->second.size()) +
                " elements; program '" + program_.name + "' needs " + std::to_string(rows) + " x " +
                std::to_string(cols));
    Matrix result(rows, cols);
    result.values = found->second;
    return result;
  }

  Matrix value_of(int i) {
    const Step& s = step(i);
    switch (s.kind) {
      case StepKind::gemm: return gemm(s);
      case StepKind::load_tile: return load_tile(s);
      case StepKind::load_per_row:
      case StepKind::load_per_column:
      case StepKind::load_scalar: return input(s.tensor);
      case StepKind::constant: {
        Matrix result(1, 1);
        result.at(0, 0) = s.number;
        return result;
      }
      case StepKind::column_index: {
        Matrix result(1, size(s.shape.cols));
        for (int64_t j = 0; j < result.cols; ++j) result.at(0, j) = static_cast<double>(j);
        return result;
      }
      case StepKind::elementwise: return elementwise(s);
      case StepKind::split_pair: return split_pair(s);
      case StepKind::merge_pairs: return merge_pairs(s);
      case StepKind::as_stored: return rounded(operand(s, 0), s.dtype);
      case StepKind::reduce_group: return reduce_group(s);
      case StepKind::repeat_group: return repeat_group(s);
      case StepKind::select_column: return select_column(s);
      case StepKind::combine: return combine_partials(s);
      case StepKind::reduce_vector: {
        Matrix result(1, 1);
        for (double x : operand(s, 0).values) result.at(0, 0) += x;
        return result;
      }
      case StepKind::transpose_vector: {
        Matrix result = operand(s, 0);
        std::swap(result.rows, result.cols);
        return result;
      }
      case StepKind::store_tile:
      case StepKind::store_vector: {
        const TensorDecl& decl = program_.tensors[s.tensor];
        outputs_[decl.name] = rounded(operand(s, 0), decl.dtype).values;
        return {};
      }
      case StepKind::row_partial: return row_partial(i), Matrix();
      case StepKind::column_partial: return column_partial(s), Matrix();
    }
    throw InternalError("unknown kind of step");
  }

  Matrix rounded(Matrix value, DType type) const {
    if (options_.round_stored) {
      for (double& x : value.values) x = round_to(x, type);
    }
    return value;
  }

  // Of steps that compute; others move values as they are. The errors of a sum of K terms whose
  // signs are random are those of K partial sums, of which the last is as large as the result: one
  // unit of |terms| sqrt(K / 2) together.
  void add_errors(const Step& s, Matrix& value) {
    constexpr double kErrors = 16 * 0x1p-24;
    std::uniform_real_distribution<double> error(-kErrors, kErrors);
    switch (s.kind) {
      case StepKind::gemm: {
        const Matrix squares = gemm(s, true);
        int64_t depth = 0;
        for (const GemmSegment& segment : s.segments) depth += depth_of(segment);
        const double steps = std::sqrt(static_cast<double>(depth) / 2);
        for (size_t i = 0; i < value.values.size(); ++i)
          value.values[i] += error(random_) * steps * std::sqrt(squares.values[i]);
        return;
      }
      case StepKind::elementwise:
      case StepKind::reduce_group:
      case StepKind::combine:
      case StepKind::reduce_vector:
        for (double& x : value.values) x += error(random_) * x;
        return;
      default: return;
    }
  }

  int64_t depth_of(const GemmSegment& segment) const {
    const Shape& a = program_.tensors[segment.a].shape;
    return size(segment.transpose_a ? a.rows : a.cols);
  }

  // Of the terms' squares: the sums of those.
  Matrix gemm(const Step& s, bool squared = false) const {
    Matrix result(size(s.shape.rows), size(s.shape.cols));
    for (const GemmSegment& segment : s.segments) {
      Matrix a = input(segment.a);
      Matrix b = input(segment.b);
      if (squared) {
        for (Matrix* m : {&a, &b})
          for (double& x : m->values) x *= x;
      }
      const int64_t depth = depth_of(segment);
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

  Matrix load_tile(const Step& s) const {
    const Matrix stored = input(s.tensor);
    Matrix result(size(s.shape.rows), size(s.shape.cols));
    const Matrix index = s.row_index >= 0 ? input(s.row_index) : Matrix();
    for (int64_t i = 0; i < result.rows; ++i) {
      const int64_t row = s.row_index >= 0 ? static_cast<int64_t>(index.at(i, 0)) : i;
      require(row >= 0 && row < stored.rows,
              "row " + std::to_string(row) + " of tensor '" + program_.tensors[s.tensor].name +
                  "', which has " + std::to_string(stored.rows) + " rows, is asked for by '" +
                  (s.row_index >= 0 ? program_.tensors[s.row_index].name : "") + "'");
      for (int64_t j = 0; j < result.cols; ++j) result.at(i, j) = stored.at(row, j % stored.cols);
    }
    return result;
  }

  // Operands broadcast along the dimensions that are 1 in the program, not along those that happen
  // to be 1 in this run.
  Matrix elementwise(const Step& s) const {
    Matrix result(size(s.shape.rows), size(s.shape.cols));
    const auto body = info(s.op).evaluate;
    for (int64_t i = 0; i < result.rows; ++i) {
      for (int64_t j = 0; j < result.cols; ++j) {
        double x[3] = {0, 0, 0};
        for (size_t o = 0; o < s.operands.size(); ++o) {
          const Shape& shape = step(s.operands[o]).shape;
          x[o] = operand(s, o).at(shape.rows.is(1) ? 0 : i, shape.cols.is(1) ? 0 : j);
        }
        result.at(i, j) = body(x[0], x[1], x[2]);
      }
    }
    return result;
  }

  Matrix split_pair(const Step& s) const {
    const Matrix& x = operand(s, 0);
    const int64_t group = size(s.group);
    Matrix result(x.rows, x.cols / 2);
    for (int64_t i = 0; i < result.rows; ++i) {
      for (int64_t j = 0; j < result.cols; ++j)
        result.at(i, j) = x.at(i, pair_column(j, s.which, group));
    }
    return result;
  }

  Matrix merge_pairs(const Step& s) const {
    const int64_t group = size(s.group);
    Matrix result(operand(s, 0).rows, 2 * operand(s, 0).cols);
    for (int which = 0; which < 2; ++which) {
      const Matrix& x = operand(s, which);
      for (int64_t i = 0; i < x.rows; ++i) {
        for (int64_t j = 0; j < x.cols; ++j)
          result.at(i, pair_column(j, which, group)) = x.at(i, j);
      }
    }
    return result;
  }

  Matrix reduce_group(const Step& s) const {
    const Matrix& x = operand(s, 0);
    const int64_t group = size(s.group);
    Matrix result(x.rows, x.cols / group);
    for (int64_t i = 0; i < x.rows; ++i) {
      for (int64_t j = 0; j < x.cols; ++j) result.at(i, j / group) += x.at(i, j);
    }
    return result;
  }

  Matrix repeat_group(const Step& s) const {
    const Matrix& x = operand(s, 0);
    const int64_t group = size(s.group);
    Matrix result(x.rows, x.cols * group);
    for (int64_t i = 0; i < result.rows; ++i) {
      for (int64_t j = 0; j < result.cols; ++j) result.at(i, j) = x.at(i, j / group);
    }
    return result;
  }

  Matrix select_column(const Step& s) const {
    const Matrix& x = operand(s, 0);
    const Matrix& index = operand(s, 1);
    Matrix result(x.rows, 1);
    for (int64_t i = 0; i < x.rows; ++i) {
      const double j = index.at(i, 0);
      if (j >= 0 && j < static_cast<double>(x.cols))
        result.at(i, 0) = x.at(i, static_cast<int64_t>(j));
    }
    return result;
  }

  void row_partial(int i) {
    const Step& s = step(i);
    const Matrix& x = operand(s, 0);
    const int64_t base = size(map_.spaces[map_.space[i]].shape.cols);
    // A value of twice the base width: a partial covers both members of its base columns' pairs.
    const bool is_wide = !(map_.pairing[i] == Dim(0));
    const int64_t group = is_wide ? size(map_.pairing[i]) : 0;
    const int lanes = info(s.partial).lanes;
    Matrix result(lanes * x.rows, partial_spans(base));
    for (int64_t row = 0; row < x.rows; ++row) {
      for (int64_t span = 0; span < result.cols; ++span) {
        std::vector<double> covered;
        for (int64_t j = span * kPartialSpan; j < std::min(base, (span + 1) * kPartialSpan); ++j) {
          if (is_wide) {
            covered.push_back(x.at(row, pair_column(j, 0, group)));
            covered.push_back(x.at(row, pair_column(j, 1, group)));
          } else {
            covered.push_back(x.at(row, j));
          }
        }
        const PartialLanes partial = reduce(s.partial, covered);
        for (int lane = 0; lane < lanes; ++lane)
          result.at(lane * x.rows + row, span) = partial[static_cast<size_t>(lane)];
      }
    }
    outputs_[program_.tensors[s.tensor].name] = std::move(result.values);
  }

  void column_partial(const Step& s) {
    const Matrix& x = operand(s, 0);
    const int lanes = info(s.partial).lanes;
    const int64_t count = partial_spans(x.rows);
    Matrix result(lanes * count, x.cols);
    for (int64_t span = 0; span < count; ++span) {
      for (int64_t col = 0; col < x.cols; ++col) {
        std::vector<double> covered;
        for (int64_t i = span * kPartialSpan; i < std::min(x.rows, (span + 1) * kPartialSpan);
             ++i) {
          covered.push_back(x.at(i, col));
        }
        const PartialLanes partial = reduce(s.partial, covered);
        for (int lane = 0; lane < lanes; ++lane)
          result.at(lane * count + span, col) = partial[static_cast<size_t>(lane)];
      }
    }
    outputs_[program_.tensors[s.tensor].name] = std::move(result.values);
  }

  Matrix combine_partials(const Step& s) const {
    const TensorDecl& decl = program_.tensors[s.tensor];
    const Matrix partials = input(s.tensor);
    const bool rows = decl.kind == TensorKind::row_partial;
    const int64_t reduced =
        size(rows ? decl.shape.cols : decl.shape.rows);  // what was reduced over
    const int64_t lines = size(rows ? decl.shape.rows : decl.shape.cols);
    const int64_t count = partial_spans(reduced);
    Matrix result(rows ? lines : 1, rows ? 1 : lines);
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
                        : info(s.partial).merge(merged, static_cast<double>(before), partial, own);
      }
      result.values[static_cast<size_t>(line)] = result_of(s.partial, merged, s.lane);
    }
    return result;
  }

  const Program& program_;
  const DimValues& sizes_;
  const TensorValues& inputs_;
  const EvaluateOptions& options_;
  std::mt19937_64 random_;
  const TileMap map_;
  std::vector<Matrix> values_;
  TensorValues outputs_;
};

}  // namespace

TensorValues evaluate(const Program& program, const DimValues& sizes, const TensorValues& inputs,
                      const EvaluateOptions& options) {
  verify(program);
  return Evaluator(program, sizes, inputs, options).run();
}

}  // namespace coda::program
