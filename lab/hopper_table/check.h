// SPDX-License-Identifier: Apache-2.0
// Is every configuration right? Small, ragged and many-wave shapes, fresh random operands, poisoned
// outputs with guards, against a naive product; and the same bits from every configuration.
#pragma once

#include "lab/hopper_table/problem.h"

namespace coda::hopper_table {

// Prints what fails; returns how many (variant, shape) pairs did. `smallest` stops after the first
// shape, for runs under a memory checker.
int check_variants(const Device& device, const NvrtcCompiler& compiler, const Support& support,
                   const std::vector<Variant>& variants, bool smallest);

}  // namespace coda::hopper_table
