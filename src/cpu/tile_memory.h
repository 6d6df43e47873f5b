// SPDX-License-Identifier: Apache-2.0
// Moves strips between memory (any storage type, any alignment) and fp32 arrays in cache. Accesses
// exactly the named elements; stores round to nearest even.
#pragma once

#include <cstdint>
#include <span>

#include "coda/tensor.h"

namespace coda::cpu {

// Rows of a tensor: row i of the strip is `row0 + i`, or row_index[row0 + i] if there is an index
// vector.
struct StripRows {
  int64_t row0 = 0;
  int64_t rows = 0;
  const int32_t* row_index = nullptr;
};

// Neighbouring columns in memory, col .. col + count, that are columns at .. at + count of a strip.
struct ColumnRun {
  int64_t at = 0;
  int64_t col = 0;
  int64_t count = 0;
};

// dst(i, run.at + j) = tensor(row i, run.col + j), j < run.count, for every run.
void load_strip(const TensorView& tensor, const StripRows& rows, std::span<const ColumnRun> runs,
                float* dst, int64_t dst_stride);
inline void load_strip(const TensorView& tensor, const StripRows& rows, int64_t col, int64_t cols,
                       float* dst, int64_t dst_stride) {
  const ColumnRun run{0, col, cols};
  load_strip(tensor, rows, {&run, 1}, dst, dst_stride);
}
// dst0(i, j), dst1(i, j) = tensor(row i, col + 2 j), tensor(row i, col + 2 j + 1), j < pairs.
void load_strip_pairs(const TensorView& tensor, const StripRows& rows, int64_t col, int64_t pairs,
                      float* dst0, float* dst1, int64_t dst_stride);

void store_strip(const TensorView& tensor, const StripRows& rows, std::span<const ColumnRun> runs,
                 const float* src, int64_t src_stride);
inline void store_strip(const TensorView& tensor, const StripRows& rows, int64_t col, int64_t cols,
                        const float* src, int64_t src_stride) {
  const ColumnRun run{0, col, cols};
  store_strip(tensor, rows, {&run, 1}, src, src_stride);
}
// Columns of the strip become rows: tensor(run.col + j, row0 + i).
void store_strip_transposed(const TensorView& tensor, const StripRows& rows,
                            std::span<const ColumnRun> runs, const float* src, int64_t src_stride);
void store_strip_pairs(const TensorView& tensor, const StripRows& rows, int64_t col, int64_t pairs,
                       const float* src0, const float* src1, int64_t src_stride);

}  // namespace coda::cpu
