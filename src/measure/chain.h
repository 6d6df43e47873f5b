// SPDX-License-Identifier: Apache-2.0
// Runs several programs in order, in float64. A program may read what an earlier one stored; a
// partial is represented by its whole reduction.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "coda/array.h"
#include "coda/program.h"
#include "measure/random_inputs.h"
#include "program/evaluate.h"

namespace coda::measure {

using program::TensorValues;

// Throws Error if two programs declare a tensor differently, or one reads what a later one stores.
void require_chain(std::span<const Program> programs);

// The declarations of what the programs read and none before stores, and of all that they store, by
// name.
struct ChainTensors {
  std::map<std::string, TensorDecl> inputs;
  std::map<std::string, TensorDecl> stored;
};
ChainTensors tensors_of(std::span<const Program> programs);

// Random inputs of the chain (random_inputs.h). Indices are in range. Inputs are made positive if
// the results would not be finite otherwise.
struct ChainInputs {
  TensorValues values{};
  std::map<std::string, TensorDecl> decls{};
  std::map<std::string, InputUse> uses{};
};
ChainInputs chain_inputs(std::span<const Program> programs, const DimValues& sizes, uint64_t seed);

// The constants of the programs, with which inputs may be compared.
std::vector<double> numbers_of(std::span<const Program> programs);

// What the programs store. Throws Error as evaluate does.
TensorValues evaluate_chain(std::span<const Program> programs, const DimValues& sizes,
                            const TensorValues& inputs);

// Tensors as an author's formula has them: a matrix [M, N], a vector [M], a scalar []. A partial is
// its whole reduction [M]; one with two results has them too, as NAME_RESULT: p, p_max, p_log_sum.
Arrays as_arrays(std::span<const Program> programs, const DimValues& sizes,
                 const TensorValues& values);

}  // namespace coda::measure
