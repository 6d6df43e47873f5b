// SPDX-License-Identifier: Apache-2.0
// Lines of NumPy-like text, evaluated in float64: what an author means by a program, in words that
// are not the program's. docs/checking.md lists what they may say.
//
//     h = x * rsqrt(mean(x ** 2, axis=1, keepdims=True) + 1e-5) * w
//     out = silu(h @ wg.T) * (h @ wu.T)
#pragma once

#include <string>
#include <string_view>

#include "coda/api.h"
#include "coda/array.h"

namespace CODA_API coda {

// The values of the names that the lines assign, each the last that it was given. `known` are the
// arrays that they may read; sizes are scalars there. An assignment hides what was known by that
// name from the next line on. Throws Error with line, column and the nearest name for what cannot
// be read, and with the shapes for what does not fit.
Arrays evaluate_formula(std::string_view text, const Arrays& known);

}  // namespace CODA_API coda
