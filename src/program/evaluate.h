// SPDX-License-Identifier: Apache-2.0
// The reference meaning of a Program, in float64 over whole matrices, step by step: the ground
// truth of every backend. It is written to be obviously right; nothing here is tiled, reordered or
// fused.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "coda/program.h"

namespace coda::program {

// Values by tensor name, row-major, in the physical shape of the tensor: a row partial is [lanes *
// rows, ceil(cols / 64)], a column partial [lanes * ceil(rows / 64), cols].
using TensorValues = std::map<std::string, std::vector<double>>;

struct EvaluateOptions {
  // Round what is stored (as_stored, and stores to dense tensors) to its type, by way of float as
  // kernels do. Otherwise both are exact.
  bool round_stored = false;
  // Not 0: the seed of random errors that arithmetic in fp32 may make, up to 16 units in the last
  // place of what each step computes (an elementary function on a GPU errs by that), and of
  // products what as many make of a sum of K terms in a row, 16 units of |terms| sqrt(K / 2).
  uint64_t fp32_errors = 0;
  // Round what each step computes to fp32, with its range: what overflows there does so here.
  bool in_fp32 = false;
};

// What the program stores. Throws Error if an input is missing or has a wrong number of elements.
TensorValues evaluate(const Program& program, const DimValues& sizes, const TensorValues& inputs,
                      const EvaluateOptions& options = {});

}  // namespace coda::program
