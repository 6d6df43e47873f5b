// SPDX-License-Identifier: Apache-2.0
// Single operations on fp32 arrays in cache: on vectors of a program, by the vector code of the
// tiles (each element's bits depend on its own operands only, whatever its position), and on planes
// whose columns are grouped.
#pragma once

#include <cmath>
#include <cstdint>

#include "coda/dtype.h"
#include "coda/elementwise.h"

namespace coda::cpu {

struct Source {
  const float* data = nullptr;
  bool is_scalar = false;  // one value for all elements
};

// dst[j] = op(operands[...][j]), j < n; dst may be one of the operands.
void elementwise(Elementwise op, const Source* operands, float* dst, int64_t n);

// dst[j] = source[j] rounded to the storage type and back, j < n.
void round_to(DType dtype, const float* source, float* dst, int64_t n);

// dst(i, j) = sum of src(i, j * group .. j * group + group), in a fixed order; with two planes the
// second plane's group is added to the first's. Only complete groups. src1 may be null.
void reduce_group(const float* src0, const float* src1, int64_t src_stride, int64_t group,
                  float* dst, int64_t dst_stride, int64_t rows, int64_t groups);
// The same of largest magnitudes; NaN lies above all numbers.
inline float larger_magnitude(float largest, float x) {
  const float magnitude = std::fabs(x);
  return magnitude <= largest || std::isnan(largest) ? largest : magnitude;
}
void abs_max_group(const float* src0, const float* src1, int64_t src_stride, int64_t group,
                   float* dst, int64_t dst_stride, int64_t rows, int64_t groups);
// dst(i, j) = src(i, j / group).
void repeat_group(const float* src, int64_t src_stride, int64_t group, float* dst,
                  int64_t dst_stride, int64_t rows, int64_t groups);

}  // namespace coda::cpu
