// SPDX-License-Identifier: Apache-2.0
// The reference semantics of a Program, in float64 over whole matrices, step by step. All backends
// are tested against it. It is written to be obviously correct: nothing is tiled, reordered or
// fused.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "coda/program.h"

namespace coda::program {

// Values by tensor name, row-major, in the tensor's physical shape: a row partial is [lanes * rows,
// ceil(cols / 64)], a column partial [lanes * ceil(rows / 64), cols].
using TensorValues = std::map<std::string, std::vector<double>>;

struct EvaluateOptions {
  // Rounds stored values (as_stored, and stores to dense tensors) to their type through fp32, as
  // kernels do. Otherwise they stay exact.
  bool round_stored = false;
  // Not 0: the seed of random errors as fp32 arithmetic may make them: up to 16 units in the last
  // place of each step's result (the error of an elementary function on a GPU), and for GEMMs the
  // error of a sum of K terms, 16 units of |terms| sqrt(K / 2).
  uint64_t fp32_errors = 0;
  // Rounds each step's result to fp32 with its range, so that overflow occurs as in fp32.
  bool in_fp32 = false;
};

// Returns what the program stores. Throws Error if an input is missing or has a wrong number of
// elements.
TensorValues evaluate(const Program& program, const DimValues& sizes, const TensorValues& inputs,
                      const EvaluateOptions& options = {});

}  // namespace coda::program
