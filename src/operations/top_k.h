// SPDX-License-Identifier: Apache-2.0
// The functions that make up top_k_mask's entry in the registry.
#pragma once

#include <cmath>
#include <vector>

#include "coda/operation.h"

namespace coda {

// Whether element i of a row, which is x, comes before its element j, which is y, in descending
// order. A total order: NaN is larger than any number, as torch.topk has it, and of two equal
// elements the one with the lower index comes first, which torch.topk leaves open.
template <class Number>
bool comes_before(Number x, int64_t i, Number y, int64_t j) {
  if (x > y || (std::isnan(x) && !std::isnan(y))) return true;
  if (y > x || (std::isnan(y) && !std::isnan(x))) return false;
  return i < j;
}

CpuKernel prepare_top_k_mask(const OperationCall& call, int threads);
std::vector<GpuKernel> top_k_mask_kernels(const OperationCall& call);

}  // namespace coda
