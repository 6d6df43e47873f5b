// SPDX-License-Identifier: Apache-2.0
// A plan's opaque calls as their operations see them: with sizes, checked against the shapes rule.
#pragma once

#include <memory>
#include <span>

#include "coda/backend.h"
#include "coda/operation.h"
#include "coda/plan.h"

namespace coda {

// `tensors`: declarations of the call's inputs, then of its outputs; `row_strides` theirs, empty:
// dense. Throws Error, naming the operation, for a call that is not as its operation declares.
OperationCall operation_call(const OpaqueCall& call, std::span<const TensorDecl> tensors,
                             const DimValues& sizes, std::span<const int64_t> row_strides = {});

// The call by its operation's definition in float64: the truth that backends are held against.
std::unique_ptr<Kernel> prepare_reference_call(const OpaqueCall& call,
                                               std::span<const TensorDecl> tensors,
                                               const DimValues& sizes);

}  // namespace coda
