// SPDX-License-Identifier: Apache-2.0
// Finds differences between the results of programs and of a formula that are only float64
// rounding errors. They are large where a formula subtracts nearly equal numbers. For example, an
// entropy may be the difference of two numbers that are a million times as large.
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

// Evaluates both sides again for inputs that are slightly perturbed. If the programs compute
// another formula, the difference of an element stays nearly the same. If the difference is a
// rounding error, it changes at random. Each element of `both.stored` whose difference is a
// rounding error gets the wanted value. `is_changed`: whether an input, by name, may be perturbed.
// `both_at`: evaluates programs and formula for given inputs.
void remove_rounding(StoredAndWanted& both, const program::TensorValues& inputs,
                     const std::function<bool(const std::string&)>& is_changed,
                     const std::function<StoredAndWanted(const program::TensorValues&)>& both_at);

}  // namespace coda::measure
