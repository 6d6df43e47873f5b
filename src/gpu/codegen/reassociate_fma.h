// SPDX-License-Identifier: Apache-2.0
// Reassociates the fp32 sums of GEMM epilogues so that they take fewer instructions: reorders sums
// so that multiplications fuse with additions, and factors out common factors.
// Invariant: the result depends only on the program, so the bits do not depend on a configuration.
#pragma once

#include "coda/program.h"

namespace coda::gpu {

// Two rules, for values that only tiles with GEMMs have:
// - a * c + b * c becomes (a + b) * c if that takes fewer instructions. SwiGLU's derivative takes
// three instead of five.
// - In a sum of at least three terms that is only stored to 16 bits, products come last, so that
// each fuses with its addition: (a * b + c * d) + e becomes (e + a * b) + c * d, two instructions.
// Products that read accumulators come first among them, which frees registers sooner. The change
// in fp32 rounding is far below the rounding of the store.
Program reassociate_fma(const Program& program);

}  // namespace coda::gpu
