// SPDX-License-Identifier: Apache-2.0
// Removes differences between the results of programs and of a formula that are only the rounding
// of float64, as where a formula cancels: the entropy of a row, for example, is the difference of
// two numbers that may be a million times as large.
#pragma once

#include <functional>
#include <string>

#include "coda/array.h"
#include "program/evaluate.h"

namespace coda::measure {

struct StoredAndWanted {
  Arrays stored;
  Arrays wanted;
};

// The difference of two formulas changes little if the inputs change a little; a rounding error
// becomes another one. Sets the elements of `both.stored` whose difference is rounding to the
// wanted value. `is_changed` tells whether an input may change; `both_at` evaluates both for other
// inputs.
void remove_rounding(StoredAndWanted& both, const program::TensorValues& inputs,
                     const std::function<bool(const std::string&)>& is_changed,
                     const std::function<StoredAndWanted(const program::TensorValues&)>& both_at);

}  // namespace coda::measure
