// SPDX-License-Identifier: Apache-2.0
// Random inputs of programs and graphs, drawn by what they are used for (input_uses.h): an index
// lies inside what it indexes, a variance is positive, a count is near the count.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "measure/input_uses.h"
#include "program/evaluate.h"

namespace coda::measure {

using program::TensorValues;

// Numbers that the tensor's type has, the same for the same name and seed: from -1 to 1 where
// nothing more is known, whole numbers from -8 to 8 in i32, 0 and 1 in u8. Places whose limit is
// not strict are a few times outside, unless all shall be `inside`.
std::vector<double> drawn(const TensorDecl& decl, const InputUse& use, const DimValues& sizes,
                          uint64_t seed, bool inside);

// Of all that the program reads.
TensorValues random_inputs(const Program& program, const DimValues& sizes, uint64_t seed,
                           bool inside = false);

// Makes as few inputs positive as lets all results be finite; all, if none does. Whether any was
// made so. `results_are_finite` evaluates.
bool make_finite(TensorValues& inputs, const std::map<std::string, InputUse>& uses,
                 const std::map<std::string, TensorDecl>& decls,
                 const std::function<bool(const TensorValues&)>& results_are_finite);

bool is_finite(const TensorValues& tensors);

// The same inputs of other sizes: larger ones meet clamps, smaller ones meet what is added to a
// mean square. First all alike, then some larger and the others smaller, so that quotients change
// as well. Indices, seeds, probabilities and counts stay.
struct ScaledInputs {
  std::string words;  // "of inputs 32 times as large"
  TensorValues values;
};
std::vector<ScaledInputs> scaled_inputs(const TensorValues& inputs,
                                        const std::map<std::string, InputUse>& uses,
                                        const std::map<std::string, TensorDecl>& decls);

}  // namespace coda::measure
