// SPDX-License-Identifier: Apache-2.0
// Moving strips between memory (any storage type, any alignment) and fp32 arrays in cache. Exactly
// the named elements of memory are touched; values are rounded to nearest even when stored.
#pragma once

#include <cstdint>

#include "coda/tensor.h"

namespace coda::cpu {

// Rows of a tensor: row i of the strip is `row0 + i`, or row_index[row0 + i] where an index vector
// is given.
struct StripRows {
  int64_t row0 = 0;
  int64_t rows = 0;
  const int32_t* row_index = nullptr;
};

// dst(i, j) = tensor(row i, col + j), j < cols.
void load_strip(const TensorView& tensor, const StripRows& rows, int64_t col, int64_t cols,
                float* dst, int64_t dst_stride);
// dst0(i, j), dst1(i, j) = tensor(row i, col + 2 j), tensor(row i, col + 2 j + 1), j < pairs.
void load_strip_pairs(const TensorView& tensor, const StripRows& rows, int64_t col, int64_t pairs,
                      float* dst0, float* dst1, int64_t dst_stride);

void store_strip(const TensorView& tensor, const StripRows& rows, int64_t col, int64_t cols,
                 const float* src, int64_t src_stride);
void store_strip_pairs(const TensorView& tensor, const StripRows& rows, int64_t col, int64_t pairs,
                       const float* src0, const float* src1, int64_t src_stride);

}  // namespace coda::cpu
