// SPDX-License-Identifier: Apache-2.0
// Whether programs compute what their author means: what they store in float64 beside a formula of
// the author's own, or beside given results.
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

// A stored tensor, or the whole reduction of a partial, beside what the author has.
struct ComparedTensor {
  std::string name{};
  std::string shape{};  // "[77, 131]"
  double error = 0;     // |stored - wanted| / |wanted|, norms over all elements
  double bound = 0;
  int64_t elements = 0;
  int64_t differing = 0;                // elements
  int64_t nan = 0;                      // elements that are NaN in both
  bool may_be_nan = false;              // as is said: else they make it wrong
  std::vector<std::string> examples{};  // "[0, 3]: 1.5, wanted 0.5"
  std::string remark{};                 // what else strikes: other shapes, a constant factor
  bool is_right() const { return differing == 0 && error <= bound && (nan == 0 || may_be_nan); }
};

struct Comparison {
  std::vector<ComparedTensor> tensors{};
  std::vector<std::string> left_out{};  // stored, and not compared
  std::vector<std::string> notes{};     // inputs that lost digits when they were stored, counts
  bool is_right() const;
};
std::string text(const Comparison& comparison);  // lines, for people

// Programs one behind the other on random inputs of a seed, drawn by what they are used for, beside
// the formula (coda/formula.h), which reads the programs' inputs by name and their sizes, and
// assigns what they store: matrices [M, N], vectors [M], of a partial p the whole reduction, and of
// its two results p_max and p_log_sum, or p_mean and p_m2. `scaled`: also larger and smaller
// inputs. A scalar that sums are multiplied or divided by, and that the formula does not read, is
// the count of what is summed. A NaN is wrong, also where the formula has one, unless the formula
// has the word nan. Throws Error for a formula that cannot be evaluated, or that names nothing that
// is stored.
Comparison compare_with_formula(std::span<const Program> programs, const DimValues& sizes,
                                std::string_view formula, uint64_t seed, bool scaled = true);
// The same with a function that has what is wanted of the inputs and sizes.
struct Wanted {
  std::function<Arrays(const Arrays& known)> of;
  bool says_nan = false;
};
Comparison compare_with_function(std::span<const Program> programs, const DimValues& sizes,
                                 const Wanted& wanted, uint64_t seed, bool scaled = true);
// Whether the text has the word nan.
bool says_nan(std::string_view text);

// The same beside given results of given inputs. Inputs are rounded to the types of their tensors;
// `bound` is the error that is allowed. Throws Error for a result that no program stores.
Comparison compare_with_results(std::span<const Program> programs, const DimValues& sizes,
                                const Arrays& inputs, const Arrays& results, double bound);

// The sizes that the arrays' shapes give the symbols of the programs' tensors of the same names,
// beside those that are `known`. A vector may be [N], [N, 1] or [1, N]; a partial is as it lies in
// memory (TensorKind). Throws Error for shapes that do not fit or contradict one another, for
// arrays that no program reads, for inputs that are missing, and for sizes that nothing gives.
DimValues sizes_of_inputs(std::span<const Program> programs, const Arrays& inputs,
                          const DimValues& known = {});

}  // namespace CODA_API coda
