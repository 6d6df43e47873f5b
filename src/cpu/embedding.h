// SPDX-License-Identifier: Apache-2.0
// Rows of a table by token id, and the gradient of the table: the sum, for each id, of the rows
// that read it, in ascending row order, so that it is the same for any number of threads.
#pragma once

#include <memory>
#include <span>

#include "coda/backend.h"

namespace coda::cpu {

std::unique_ptr<Kernel> prepare_embedding(const OpaqueCall& call,
                                          std::span<const TensorDecl> tensors,
                                          const DimValues& sizes, int threads);

// The optional third input is added; it may be the same memory as the output.
std::unique_ptr<Kernel> prepare_embedding_backward(const OpaqueCall& call,
                                                   std::span<const TensorDecl> tensors,
                                                   const DimValues& sizes, int threads);

}  // namespace coda::cpu
