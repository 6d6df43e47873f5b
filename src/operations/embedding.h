// SPDX-License-Identifier: Apache-2.0
// The functions that make up embedding's two entries in the registry.
#pragma once

#include <vector>

#include "coda/operation.h"

namespace coda {

// Rows of a table by token id.
CpuKernel prepare_embedding(const OperationCall& call, int threads);
std::vector<GpuKernel> embedding_kernels(const OperationCall& call);

// The gradient of the table: the sum, for each id, of the rows that read it, in ascending row
// order, so that it is the same for any number of threads. What it is added to may be the same
// memory as the result.
CpuKernel prepare_embedding_backward(const OperationCall& call, int threads);
std::vector<GpuKernel> embedding_backward_kernels(const OperationCall& call);

}  // namespace coda
