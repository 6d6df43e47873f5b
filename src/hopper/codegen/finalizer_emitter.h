// SPDX-License-Identifier: Apache-2.0
// Kernels of programs over vectors: partials combined, vectors summed, scalars made of them.
#pragma once

#include <vector>

#include "coda/dim.h"
#include "coda/program.h"
#include "hopper/codegen/kernel_launch.h"
#include "hopper/legalise/lower_options.h"

namespace coda::hopper {

// One launch; two where scalars depend on the sum of a vector that many blocks must make first.
// Throws Error, naming the program, if a size does not fit.
std::vector<KernelLaunch> lower_finalizer(const Program& program, const DimValues& sizes,
                                          const LowerOptions& options);

}  // namespace coda::hopper
