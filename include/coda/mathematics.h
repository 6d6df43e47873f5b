// SPDX-License-Identifier: Apache-2.0
// Prints what a program computes in ordinary notation, so that a person can check that it is what
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
// · is the matrix product, ⊙ the elementwise product, ᵀ the transpose. A value that is used twice
// has its own line; its name is that of the tensor that stores it, or else v1, v2, and so on. A
// partial has the name of its whole reduction. Storage types are left out. Throws Error unless the
// program is well formed.
std::vector<std::string> mathematics(const Program& program);

}  // namespace CODA_API coda
