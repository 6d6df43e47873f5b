// SPDX-License-Identifier: Apache-2.0
// Splits a program that does not fit into kernels: as little as possible, and of the legal cuts the
// one that moves the fewest bytes.
// Invariant: the split depends only on the program and the row strides of its tensors, not on the
// number of rows or on a configuration; so bits do not depend on those.
#pragma once

#include <functional>
#include <vector>

#include "coda/dim.h"
#include "gpu/legalise/split_program.h"

namespace coda::gpu {

// Whether no kernels can be made for a part.
using IsRefused = std::function<bool(const ProgramPart&)>;

// A plan whose parts all fit into kernels; empty if there is none.
std::vector<PartPlan> legalise(const Program& program, const DimValues& sizes,
                               const IsRefused& is_refused);

}  // namespace coda::gpu
