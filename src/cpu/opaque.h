// SPDX-License-Identifier: Apache-2.0
// Opaque calls on the CPU, run by the kernels that their operations prepare.
#pragma once

#include <memory>
#include <span>

#include "coda/backend.h"

namespace coda::cpu {

// `tensors`: declarations of the inputs, then of the outputs. Throws Error, naming the operation,
// for an unknown operation, for one without a CPU kernel, and for an invalid call.
std::unique_ptr<Kernel> prepare_opaque(const OpaqueCall& call, std::span<const TensorDecl> tensors,
                                       const DimValues& sizes, int threads);

}  // namespace coda::cpu
