// SPDX-License-Identifier: Apache-2.0
// Evaluates each step as a whole matrix of doubles.
#include "program/evaluate.h"

#include <random>

#include "base/stored_element.h"
#include "coda/error.h"
#include "program/evaluation.h"
#include "program/step_table.h"

namespace coda::program {
StepValue Evaluation::input(int tensor) const {
  const TensorDecl& decl = program.tensors[tensor];
  const auto [rows, cols] = physical_shape(decl, sizes);
  const auto found = inputs.find(decl.name);
  require(found != inputs.end(),
          "program '" + program.name + "' needs a value of tensor '" + decl.name + "'");
  require(static_cast<int64_t>(found->second.size()) == rows * cols,
          "tensor '" + decl.name + "' has " + std::to_string(found->second.size()) +
              " elements; program '" + program.name + "' needs " + std::to_string(rows) + " x " +
              std::to_string(cols));
  StepValue result(rows, cols);
  result.values = found->second;
  return result;
}

StepValue Evaluation::stored(StepValue value, DType type) const {
  if (options.round_stored) {
    for (double& x : value.values) x = rounded_to(type, x);
  }
  return value;
}

TensorValues evaluate(const Program& program, const DimValues& sizes, const TensorValues& inputs,
                      const EvaluateOptions& options) {
  verify(program);
  const TileMap map = map_tiles(program);
  std::vector<StepValue> values;
  TensorValues outputs;
  constexpr double kErrors = 16 * 0x1p-24;
  std::mt19937_64 random(options.fp32_errors);
  for (const Step& step : program.steps) {
    const StepInfo& kind = info(step.kind());
    const Evaluation at{
        program, sizes, inputs, options, map, values, static_cast<int>(values.size())};
    StepValue value = kind.evaluate(at);
    if (options.fp32_errors != 0 && kind.error_scale != nullptr) {
      std::uniform_real_distribution<double> error(-kErrors, kErrors);
      const StepValue scale = kind.error_scale(at, value);
      for (size_t i = 0; i < value.values.size(); ++i)
        value.values[i] += error(random) * scale.values[i];
    }
    if (options.in_fp32) {
      for (double& x : value.values) x = rounded_to(DType::f32, x);
    }
    if (is_effect(step)) outputs[at.tensor().name] = std::move(value.values);
    values.push_back(std::move(value));
  }
  return outputs;
}

}  // namespace coda::program
