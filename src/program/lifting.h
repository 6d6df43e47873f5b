// SPDX-License-Identifier: Apache-2.0
// The context in which a step is lifted to a graph operation.
#pragma once

#include <vector>

#include "coda/lift.h"

namespace coda::program {

struct Lifting {
  const Program& program;
  const Step& step;
  Graph& graph;
  LiftedTensors& tensors;
  const std::vector<Value>& values;  // of earlier steps

  Value operand(size_t index) const { return values[step.operands[index]]; }
  // The value of a tensor; a new tensor becomes an input. Throws Error.
  Value read(int tensor) const;
};

}  // namespace coda::program
