// SPDX-License-Identifier: Apache-2.0
// Opaque functions in float64, by the definitions that the compiler's table has: the truth that
// fast versions are tested against. Any storage type.
#pragma once

#include <memory>
#include <span>

#include "coda/backend.h"

namespace coda {

std::unique_ptr<Kernel> prepare_reference_opaque(const OpaqueCall& call,
                                                 std::span<const TensorDecl> tensors,
                                                 const DimValues& sizes);

}  // namespace coda
