// SPDX-License-Identifier: Apache-2.0
// The peer: cuBLAS's GEMM of the same shape, layouts and types, one candidate for each of the first
// 16 algorithms that its heuristics propose.
#pragma once

#include <functional>
#include <vector>

#include "bench/hopper_table/problem.h"

namespace coda::hopper_table {

// The operands are the problem's own; each function writes the first store of its set.
std::vector<std::function<void(unsigned set)>> cublas_algorithms(const Device& device,
                                                                 const Problem& problem);

}  // namespace coda::hopper_table
