// SPDX-License-Identifier: Apache-2.0
// Opaque calls on the CPU: by the kernels that their operations prepare.
#pragma once

#include <memory>
#include <span>

#include "coda/backend.h"

namespace coda::cpu {

// `tensors`: declarations of the inputs, then of the outputs. Throws Error, naming the operation,
// for one that is not known or has no kernel for the CPU, and for a call that does not fit it.
std::unique_ptr<Kernel> prepare_opaque(const OpaqueCall& call, std::span<const TensorDecl> tensors,
                                       const DimValues& sizes, int threads);

}  // namespace coda::cpu
