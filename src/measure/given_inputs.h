// SPDX-License-Identifier: Apache-2.0
// Arrays that a caller gives programs as inputs: what their tensors make of them.
#pragma once

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

// Of the shapes that sizes_of_inputs asks for. Throws Error for indices of rows that are outside of
// their table and for what is no whole number where one is needed.
GivenInputs given_inputs(std::span<const Program> programs, const DimValues& sizes,
                         const Arrays& inputs);

}  // namespace coda::measure
