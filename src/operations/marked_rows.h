// SPDX-License-Identifier: Apache-2.0
// The functions that make up marked_rows' entry in the registry.
#pragma once

#include <vector>

#include "coda/operation.h"

namespace coda {

// For each column of a mask the numbers of the rows that it marks, ascending.
CpuKernel prepare_marked_rows(const OperationCall& call, int threads);
std::vector<GpuKernel> marked_rows_kernels(const OperationCall& call);

}  // namespace coda
