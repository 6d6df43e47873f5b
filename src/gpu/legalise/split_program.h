// SPDX-License-Identifier: Apache-2.0
// A program as several that run one after another: each makes some of its effects, and keeps values
// that later ones load. Pure data; what is worth splitting where is decided elsewhere
// (legalise.h).
// Invariant: evaluated in order, the parts store what the program stores; in float64 the same
// numbers, since values are kept in fp32, as kernels compute them, or in the type they are rounded
// to.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "coda/program.h"

namespace coda::gpu {

// What one part does; steps of the given program, ascending.
struct PartPlan {
  std::vector<int> effects;
  std::vector<int> kept;  // values, for later parts

  friend bool operator==(const PartPlan&, const PartPlan&) = default;
};

struct ProgramPart {
  Program program;
  // Of each of its tensors: the index among the given program's tensors, then the scratch tensors.
  std::vector<int> tensors;
  // Of each of its steps: the given program's step that it makes; -1: it moves a kept value.
  std::vector<int> origin;
};

struct SplitProgram {
  std::vector<TensorDecl> scratch;  // dense; each is stored by one part, and loaded by later ones
  std::vector<ProgramPart> parts;
};

// Each effect is in one part. A part makes what it needs of its own steps, from values that earlier
// parts keep. A kept value that an earlier part stores anyway needs no scratch tensor. Throws Error
// if a part is no well-formed program (an in-place store that has come apart from its load).
SplitProgram split_program(const Program& program, std::span<const PartPlan> parts);

// The same program, where the K segments of a product are stored in one order and in one type;
// others are added as products of their own.
Program with_uniform_products(const Program& program);

}  // namespace coda::gpu
