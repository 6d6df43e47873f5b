// SPDX-License-Identifier: Apache-2.0
// Single operations on fp32 arrays in cache, by the vector code of the tiles: vectors of a program,
// and planes whose columns are grouped. Each element's bits depend on its own operands only,
// whatever its position.
#pragma once

#include <cstdint>

#include "coda/dtype.h"
#include "coda/elementwise.h"
#include "cpu/chain_machine.h"

namespace coda::cpu {

// Floats that chains may read and write past the end of planes and vectors.
inline constexpr int64_t kVectorPad = kWidestChunk;

// Element (i, j) is data[i * row_stride + j], or data[i * row_stride] for a value that is constant
// along columns.
struct Source {
  const float* data = nullptr;
  int64_t row_stride = 0;
  bool is_constant_along_columns = false;
};

// dst(i, j) = op(operands...); dst may be one of the operands.
void elementwise(Elementwise op, const Source* operands, float* dst, int64_t dst_stride,
                 int64_t rows, int64_t cols);

// dst = the values rounded to the storage type and back.
void round_to(DType dtype, const Source& source, float* dst, int64_t dst_stride, int64_t rows,
              int64_t cols);

// dst(i, j) = sum of src(i, j * group .. j * group + group), in a fixed order; with two planes the
// second plane's group is added to the first's. Only complete groups. src1 may be null.
void reduce_group(const float* src0, const float* src1, int64_t src_stride, int64_t group,
                  float* dst, int64_t dst_stride, int64_t rows, int64_t groups);
// dst(i, j) = src(i, j / group).
void repeat_group(const float* src, int64_t src_stride, int64_t group, float* dst,
                  int64_t dst_stride, int64_t rows, int64_t groups);

}  // namespace coda::cpu
