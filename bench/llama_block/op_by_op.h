// SPDX-License-Identifier: Apache-2.0
// The measured block as a framework runs it: each operation (a linear layer, a norm, silu times up,
// a rotation, a residual sum, the gradient of each of these, each sum of gradients) is compiled
// alone, reads its operands from memory and writes its result there. The programs of single
// operations are the best of this backend; only fusion is missing.
#pragma once

#include "block_graph.h"

namespace coda::bench {

// Computes what add_block's graph does, with the same names of inputs and results.
Plan op_by_op_plan(const BlockSize& size, DType storage, bool backward, const DimValues& sizes);

}  // namespace coda::bench
