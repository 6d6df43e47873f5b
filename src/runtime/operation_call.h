// SPDX-License-Identifier: Apache-2.0
// Converts a plan's opaque calls for their operations: evaluates sizes and checks shapes.
#pragma once

#include <memory>
#include <span>

#include "coda/backend.h"
#include "coda/operation.h"
#include "coda/plan.h"

namespace coda {

// `tensors`: declarations of the call's inputs, then of its outputs; `row_strides`: of these
// (empty: dense). Throws Error, naming the operation, for a call that does not match the operation.
OperationCall operation_call(const OpaqueCall& call, std::span<const TensorDecl> tensors,
                             const DimValues& sizes, std::span<const int64_t> row_strides = {});

// Runs the call by its float64 definition; backends are tested against it.
std::unique_ptr<Kernel> prepare_reference_call(const OpaqueCall& call,
                                               std::span<const TensorDecl> tensors,
                                               const DimValues& sizes);

}  // namespace coda
