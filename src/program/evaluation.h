// SPDX-License-Identifier: Apache-2.0
// The context in which a step is evaluated in float64: whole matrices of doubles.
#pragma once

#include <vector>

#include "program/evaluate.h"
#include "program/tile_map.h"

namespace coda::program {

struct StepValue {
  int64_t rows = 0;
  int64_t cols = 0;
  std::vector<double> values;

  StepValue() = default;
  StepValue(int64_t rows, int64_t cols) : rows(rows), cols(cols), values(rows * cols) {}
  StepValue(int64_t rows, int64_t cols, const auto& value_at) : StepValue(rows, cols) {
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < cols; ++j) at(i, j) = value_at(i, j);
  }
  double& at(int64_t i, int64_t j) { return values[i * cols + j]; }
  double at(int64_t i, int64_t j) const { return values[i * cols + j]; }
};

struct Evaluation {
  const Program& program;
  const DimValues& sizes;
  const TensorValues& inputs;
  const EvaluateOptions& options;
  const TileMap& map;
  const std::vector<StepValue>& values;  // of earlier steps
  int at;

  const Step& step() const { return program.steps[at]; }
  const TensorDecl& tensor() const { return program.tensors[step().tensor()]; }
  const StepValue& operand(size_t index) const { return values[step().operands[index]]; }
  int64_t size(const Dim& dim) const { return dim.evaluate(sizes); }
  // The caller's value of a tensor. Throws Error.
  StepValue input(int tensor) const;
  // The value rounded as stored, if the options request it.
  StepValue stored(StepValue value, DType type) const;
};

// The error scale of values that are computed in a few operations: the value itself.
inline StepValue errors_of_value(const Evaluation&, const StepValue& value) { return value; }

}  // namespace coda::program
