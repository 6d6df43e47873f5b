// SPDX-License-Identifier: Apache-2.0
// The functions of opaque calls on the CPU: attention (attributes and sizes: see attention.h) and
// embedding, with their adjoints. Operand orders:
//   attention           q, k, v               -> y, lse
//   attention_backward  q, k, v, y, lse, dy   -> dq, dk, dv
//   embedding           table, ids            -> rows
//   embedding_backward  drows, ids[, add_to]  -> dtable
// Tensors are f32 or bf16 each (lse f32, ids i32), arithmetic is fp32, and results do not depend on
// `threads`.
#pragma once

#include <memory>
#include <span>

#include "coda/backend.h"

namespace coda::cpu {

// Throws Error, naming the function and the operand, for a call whose sizes or types do not fit.
std::unique_ptr<Kernel> prepare_opaque(const OpaqueCall& call, std::span<const TensorDecl> tensors,
                                       const DimValues& sizes, int threads);

}  // namespace coda::cpu
