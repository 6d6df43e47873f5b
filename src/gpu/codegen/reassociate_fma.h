// SPDX-License-Identifier: Apache-2.0
// A program whose products' epilogues take fewer instructions for the same values: in single
// precision a sum is put in the order in which multiplications and additions fuse, and what its
// terms have in common is multiplied once.
// Invariant: the result depends on the program alone, so bits do not depend on a configuration.
#pragma once

#include "coda/program.h"

namespace coda::gpu {

// Two rules, for values that only tiles with products have:
// - a * c + b * c becomes (a + b) * c where that is fewer instructions: SwiGLU's derivative takes
//   three instead of five.
// - Of a sum of three terms or more that is only stored to 16 bits, products come last, each fused
//   with its addition: (a * b + c * d) + e takes two instructions as (e + a * b) + c * d. Those
//   that read accumulators come first among them, so that their registers are free sooner. What is
//   rounded in single precision then is far below the rounding of the store.
Program reassociate_fma(const Program& program);

}  // namespace coda::gpu
