// SPDX-License-Identifier: Apache-2.0
// Arrays that a caller gives programs or a graph as inputs: what their tensors make of them.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "coda/array.h"
#include "coda/program.h"
#include "program/evaluate.h"

namespace coda::measure {

struct GivenInputs {
  program::TensorValues values;    // rounded to the types of their tensors
  std::vector<std::string> notes;  // of those that this changed
};

// Rounds to the types of the tensors that are declared. Throws Error for what is no whole number
// where one is needed.
GivenInputs rounded_inputs(const std::map<std::string, TensorDecl>& declared, const Arrays& inputs);

// Throws Error unless `index` has rows of `table` only: they are gathered without a check.
void require_rows(const std::string& index, const std::vector<double>& values,
                  const std::string& table, int64_t rows);

// How messages name what reads inputs: "the programs read", "no program reads", "they read".
struct Readers {
  std::string read;
  std::string none_reads;
  std::string they_read;
};

// As sizes_of_inputs (coda/compare.h), of the inputs that are declared.
DimValues sizes_of(const std::map<std::string, TensorDecl>& declared, const Arrays& inputs,
                   const DimValues& known, const Readers& readers);

// Of the shapes that sizes_of_inputs asks for. Throws Error for indices of rows that are outside of
// their table and for what is no whole number where one is needed.
GivenInputs given_inputs(std::span<const Program> programs, const DimValues& sizes,
                         const Arrays& inputs);

}  // namespace coda::measure
