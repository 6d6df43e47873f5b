// SPDX-License-Identifier: Apache-2.0
// Runs programs one after another on given arrays, for `coda run`.
//
//     const Arrays inputs = read_arrays("x.npz");
//     const DimValues sizes = sizes_of_inputs(programs, inputs);
//     write_arrays("y.npz", run_programs(programs, sizes, inputs, *backend).results);
#pragma once

#include <span>
#include <string>
#include <vector>

#include "coda/api.h"
#include "coda/array_file.h"
#include "coda/backend.h"
#include "coda/compare.h"
#include "coda/program.h"

namespace CODA_API coda {

struct RunResult {
  // All tensors that the programs store, with their types: a matrix [M, N], a vector [M], a scalar
  // []; a partial in its memory layout (TensorKind).
  std::vector<ArrayToWrite> results{};
  std::vector<std::string> notes{};  // inputs that lost precision when they were stored
};

// `sizes` and the shapes of the inputs must be those of sizes_of_inputs. Throws Error for an index
// out of range, for a value of an i32 tensor that is not an integer, and if the backend rejects a
// program.
RunResult run_programs(std::span<const Program> programs, const DimValues& sizes,
                       const Arrays& inputs, Backend& backend);

}  // namespace CODA_API coda
