// SPDX-License-Identifier: Apache-2.0
// Converts arrays that a caller gives as inputs of programs or of a graph to the types of the
// tensors.
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
  std::vector<std::string> notes;  // names the inputs that rounding changed
};

// Rounds inputs to the declared types of their tensors. Throws Error for a fraction where a whole
// number is needed.
GivenInputs rounded_inputs(const std::map<std::string, TensorDecl>& declared, const Arrays& inputs);

// Throws Error if `index` has a row outside of `table`; gathering does not check this.
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
