// SPDX-License-Identifier: Apache-2.0
// Emits kernels for programs over vectors: combining partials, summing vectors, and computing
// scalars.
#pragma once

#include <vector>

#include "gpu/codegen/kernel_launch.h"
#include "gpu/legalise/program_sizes.h"

namespace coda::gpu {

// One launch, or two if scalars depend on the sum of a vector that many blocks compute. Throws
// Error, naming the program, if a size does not fit.
std::vector<KernelLaunch> lower_finalizer(const ProgramSizes& sizes);

}  // namespace coda::gpu
