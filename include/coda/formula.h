// SPDX-License-Identifier: Apache-2.0
// Evaluates lines of NumPy-like text in float64. A formula says what the author of a program means,
// independently of the program. docs/checking.md describes the language.
//
//     h = x * rsqrt(mean(x ** 2, axis=1, keepdims=True) + 1e-5) * w
//     out = silu(h @ wg.T) * (h @ wu.T)
#pragma once

#include <string>
#include <string_view>

#include "coda/api.h"
#include "coda/array.h"

namespace CODA_API coda {

// Returns the final values of all names that the lines assign. The lines may read the arrays in
// `known`, where sizes are scalars; from the line after its assignment on, an assigned name hides
// the known array. Throws Error for a syntax error (with line, column and the nearest known name)
// and for shapes that do not fit (with the shapes).
Arrays evaluate_formula(std::string_view text, const Arrays& known);

}  // namespace CODA_API coda
