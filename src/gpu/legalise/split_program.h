// SPDX-License-Identifier: Apache-2.0
// Splits a program into several that run one after another: each part has some of the effects and
// saves values for later parts. Where to split is decided in legalise.h.
// Invariant: run in order, the parts store the same as the program. In float64 the numbers are the
// same, because values are saved in fp32 (as kernels compute them) or in the type that they are
// rounded to.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "coda/program.h"

namespace coda::gpu {

// The content of one part; steps of the given program, ascending.
struct PartPlan {
  std::vector<int> effects;
  std::vector<int> kept;  // values saved for later parts

  friend bool operator==(const PartPlan&, const PartPlan&) = default;
};

struct ProgramPart {
  Program program;
  // For each of its tensors: the index in the given program's tensors followed by the scratch
  // tensors.
  std::vector<int> tensors;
  // For each of its steps: the corresponding step of the given program; -1: it moves a saved value.
  std::vector<int> origin;
};

struct SplitProgram {
  std::vector<TensorDecl> scratch;  // dense; one part stores it, later parts load it
  std::vector<ProgramPart> parts;
};

// Each effect must be in exactly one part. A part computes the steps that it needs from values that
// earlier parts saved. A saved value that an earlier part stores anyway needs no scratch tensor.
// Throws Error if a part is not a valid program (an in-place store in another part than its load).
SplitProgram split_program(const Program& program, std::span<const PartPlan> parts);

// The same program, in which all K segments of a GEMM have the same storage order and type; other
// segments become separate GEMMs whose results are added.
Program with_uniform_products(const Program& program);

}  // namespace coda::gpu
