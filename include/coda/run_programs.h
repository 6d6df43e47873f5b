// SPDX-License-Identifier: Apache-2.0
// Runs programs one behind the other on given arrays: what `coda run` does.
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
  // All that the programs store, with its type: a matrix [M, N], a vector [M], a scalar []; a
  // partial as it lies in memory (TensorKind).
  std::vector<ArrayToWrite> results{};
  std::vector<std::string> notes{};  // inputs that lost digits when they were stored
};

// `sizes` and the inputs' shapes are those of sizes_of_inputs. Throws Error for an index outside
// of what it indexes, for what is no whole number in an i32 tensor, and where the backend does not
// take a program.
RunResult run_programs(std::span<const Program> programs, const DimValues& sizes,
                       const Arrays& inputs, Backend& backend);

}  // namespace CODA_API coda
