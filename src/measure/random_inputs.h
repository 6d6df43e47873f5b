// SPDX-License-Identifier: Apache-2.0
// Random inputs of programs and graphs, drawn according to their use (input_uses.h): an index is in
// range, a variance is positive, a count is near the true count.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "measure/input_uses.h"
#include "program/evaluate.h"

namespace coda::measure {

using program::TensorValues;

// Random values that the tensor's type can represent. They depend only on the seed and the tensor's
// name. Values of Use::number are from -1 to 1, whole numbers from -8 to 8 in i32, 0 or 1 in u8.
// Places with a limit that is not strict may be out of range by one, unless `inside`.
std::vector<double> drawn(const TensorDecl& decl, const InputUse& use, const DimValues& sizes,
                          uint64_t seed, bool inside);

// Random values for all tensors that the program reads.
TensorValues random_inputs(const Program& program, const DimValues& sizes, uint64_t seed,
                           bool inside = false);

// Makes inputs positive until all results are finite: first tries each input alone, then more and
// more inputs together. If nothing helps, all inputs are positive at the end. Returns whether any
// input changed. `results_are_finite` evaluates the programs.
bool make_finite(TensorValues& inputs, const std::map<std::string, InputUse>& uses,
                 const std::map<std::string, TensorDecl>& decls,
                 const std::function<bool(const TensorValues&)>& results_are_finite);

bool is_finite(const TensorValues& tensors);

// The same inputs at other scales. Larger inputs reach clamps; smaller ones reach the epsilon that
// is added to a mean square. At first all inputs are scaled alike; then some are larger and the
// others smaller, so that quotients change too. Indices, seeds, probabilities and counts are not
// scaled.
struct ScaledInputs {
  std::string words;  // "of inputs 32 times as large"
  TensorValues values;
};
std::vector<ScaledInputs> scaled_inputs(const TensorValues& inputs,
                                        const std::map<std::string, InputUse>& uses,
                                        const std::map<std::string, TensorDecl>& decls);

// Two variants of the inputs. In the first one a random half of the elements is 0, so that > and >=
// differ in a comparison with 0. The second one also divides the other elements by 1024, so that an
// epsilon is not small compared with what it is added to. Divisors and scalars do not become 0. Not
// for gradients: at 0 a derivative may not exist.
std::vector<ScaledInputs> edge_inputs(const TensorValues& inputs,
                                      const std::map<std::string, InputUse>& uses,
                                      const std::map<std::string, TensorDecl>& decls);

// Inputs that exceed constants with which a program may compare them (clip(x, -100, 100)), where
// those of scaled_inputs do not: half of the elements, chosen at random, get at least twice the
// constant's magnitude. One variant for each of the two largest magnitudes of `numbers` up to 2^20.
// Larger constants serve as infinity in masks and are left out. Scalars stay as they are.
std::vector<ScaledInputs> reaching_inputs(const TensorValues& inputs,
                                          const std::map<std::string, InputUse>& uses,
                                          const std::map<std::string, TensorDecl>& decls,
                                          const std::vector<double>& numbers);

// Scalars and whole numbers (i32) at the constants with which a program or formula may compare
// them, up to eight of `numbers`. A scalar has one value, so three variants for each number, and
// for 0, set it below, at and above the number; a scalar of a floating type stays apart from the
// number, because rounding would decide. Of the elements of other whole numbers half are the number
// or differ from it by one. Indices of rows and columns get the number itself (as -100 for a class
// that is ignored). Indices that a gather does not check, seeds, probabilities and counts do not
// change.
std::vector<ScaledInputs> meeting_inputs(const TensorValues& inputs,
                                         const std::map<std::string, InputUse>& uses,
                                         const std::map<std::string, TensorDecl>& decls,
                                         const std::vector<double>& numbers);

}  // namespace coda::measure
