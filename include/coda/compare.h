// SPDX-License-Identifier: Apache-2.0
// Checks whether programs compute what their author means: compares the tensors that the programs
// store, computed in float64, with a formula of the author's own or with given results.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "coda/api.h"
#include "coda/array.h"
#include "coda/program.h"

namespace CODA_API coda {

// A stored tensor, or the whole reduction of a partial, compared with the wanted values.
struct ComparedTensor {
  std::string name{};
  std::string shape{};  // "[77, 131]"
  double error = 0;     // |stored - wanted| / |wanted|, norms over all elements
  double bound = 0;
  int64_t elements = 0;
  int64_t differing = 0;    // number of elements that differ
  int64_t nan = 0;          // elements that are NaN in both results
  bool may_be_nan = false;  // whether NaN elements are declared as intended; else they are an error
  int64_t overflowing = 0;  // elements that only the wanted values have as finite numbers
  std::vector<std::string> examples{};  // "[0, 3]: 1.5, wanted 0.5"
  std::string remark{};                 // other observations: different shapes, a constant factor
  bool is_right() const { return differing == 0 && error <= bound && (nan == 0 || may_be_nan); }
};

struct Comparison {
  std::vector<ComparedTensor> tensors{};
  std::vector<std::string> left_out{};  // tensors that were stored and not compared
  // Inputs that lost precision when they were stored; scalars that were taken as counts; results
  // that overflow for larger or smaller inputs where the formula does not.
  std::vector<std::string> notes{};
  bool is_right() const;
};
std::string text(const Comparison& comparison);  // several lines, for people

// Runs the programs in order on random inputs and compares their results with the formula
// (coda/formula.h). The inputs are drawn from `seed`, each according to its use
// (src/measure/input_uses.h).
// The formula reads the programs' inputs and sizes by name. It assigns what the programs store:
// matrices [M, N] and vectors [M]; for a partial p the whole reduction; for a partial with two
// results p_max and p_log_sum, or p_mean and p_m2. If a scalar multiplies or divides a sum and the
// formula does not read the scalar, the scalar is set to the number of summed values. `scaled`:
// also compare with larger and smaller inputs, and with inputs that exceed the constants of the
// formula and the programs. A NaN is an error even if the formula has one at the same place, unless
// the text of the formula contains the word nan.
// Throws Error for a formula that cannot be evaluated, or that assigns no stored tensor.
Comparison compare_with_formula(std::span<const Program> programs, const DimValues& sizes,
                                std::string_view formula, uint64_t seed, bool scaled = true);
// The same with a function that computes the wanted arrays from the inputs and sizes.
struct Wanted {
  std::function<Arrays(const Arrays& known)> of;
  bool says_nan = false;
  std::vector<double> numbers{};  // constants that inputs may be compared with
};
Comparison compare_with_function(std::span<const Program> programs, const DimValues& sizes,
                                 const Wanted& wanted, uint64_t seed, bool scaled = true);
// The arrays that the function `of` computes; the constants are read from its text.
Wanted wanted_by(std::string_view text, std::function<Arrays(const Arrays& known)> of);

// The same with given inputs and given results. Inputs are rounded to the types of their tensors.
// `bound`: the allowed error. Throws Error for a result that no program stores.
Comparison compare_with_results(std::span<const Program> programs, const DimValues& sizes,
                                const Arrays& inputs, const Arrays& results, double bound);

// Derives the values of symbols from the shapes of the arrays, which have the names of the
// programs' tensors; `known` values are added. A vector may be [N], [N, 1] or [1, N]; a partial has
// its layout in memory (TensorKind). Throws Error for contradictory shapes, for arrays that no
// program reads, for missing inputs, and for symbols that stay without a value.
DimValues sizes_of_inputs(std::span<const Program> programs, const Arrays& inputs,
                          const DimValues& known = {});

}  // namespace CODA_API coda
