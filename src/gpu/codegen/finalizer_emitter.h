// SPDX-License-Identifier: Apache-2.0
// Kernels of programs over vectors: partials combined, vectors summed, scalars made of them.
#pragma once

#include <vector>

#include "gpu/codegen/kernel_launch.h"
#include "gpu/legalise/program_sizes.h"

namespace coda::gpu {

// One launch; two where scalars depend on the sum of a vector that many blocks must make first.
// Throws Error, naming the program, if a size does not fit.
std::vector<KernelLaunch> lower_finalizer(const ProgramSizes& sizes);

}  // namespace coda::gpu
