// SPDX-License-Identifier: Apache-2.0
// What a program computes, in ordinary notation, for a person who wants to know whether it is what
// was meant.
#pragma once

#include <string>
#include <vector>

#include "coda/api.h"
#include "coda/program.h"

namespace CODA_API coda {

// A line for each tensor that the program stores, in the order of its steps:
//
//     of y0[M, D], wo[D, D], x0[M, D], w1[D] per column
//     x1[M, D] = y0 · woᵀ + x0
//     h1[M, D] = x1 ⊙ w1
//     x1_squares = row sums of x1²
//
// · is the product of matrices, ⊙ that of elements, ᵀ the transposed. A value that is used twice
// has a line of its own; it goes by the name of the tensor that it is stored in, or by v1, v2, and
// so on. A partial is named by the whole reduction that it is a part of. The types in which values
// are stored are left out. Throws Error unless the program is well formed.
std::vector<std::string> mathematics(const Program& program);

}  // namespace CODA_API coda
