// SPDX-License-Identifier: Apache-2.0
// What a step sees when it becomes the graph operation that it is the tile of.
#pragma once

#include <vector>

#include "coda/lift.h"

namespace coda::program {

struct Lifting {
  const Program& program;
  const Step& step;
  Graph& graph;
  LiftedTensors& tensors;
  const std::vector<Value>& values;  // of the steps before

  Value operand(size_t index) const { return values[step.operands[index]]; }
  // What a tensor stands for, an input if it is new. Throws Error.
  Value read(int tensor) const;
};

}  // namespace coda::program
