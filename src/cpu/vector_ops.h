// SPDX-License-Identifier: Apache-2.0
// Single operations on fp32 planes in cache; rows are `stride` floats apart. The bits of an element
// depend only on its own operands, not on its position. Groups of columns are summed in a fixed
// order.
#pragma once

#include <cmath>
#include <cstdint>

#include "coda/dtype.h"
#include "coda/elementwise.h"

namespace coda::cpu {

// Number of floats after the end of planes and vectors that kernels may read.
inline constexpr int64_t kVectorPad = 16;

// Sums, possibly with a product that they read: with one rounding if the processor has a fused
// instruction.
enum class Arithmetic : uint8_t {
  add,
  subtract,
  multiply_add,       // a·b + c
  multiply_subtract,  // a·b - c
  subtract_product,   // c - a·b
};

// An operand. Element (i, j) is data[i * stride + j], or data[i * stride] if a row has one value.
struct Source {
  const float* data = nullptr;
  int64_t stride = 0;
  bool is_constant_along_row = false;
};

// A result. It may overwrite one of the operands.
struct Result {
  float* data = nullptr;
  int64_t stride = 0;
  int64_t rows = 1;
  int64_t cols = 0;
};

// result(i, j) = op(operands[0](i, j), ...); `operands` are as many as `op` has.
void elementwise(Elementwise op, const Source* operands, const Result& result);
void arithmetic(Arithmetic op, const Source* operands, const Result& result);
// result(i, j) = source(i, j) rounded to the storage type and back.
void round_to(DType dtype, const Source& source, const Result& result);

// dst(i, j) = sum of src(i, j * group .. j * group + group), in a fixed order; with two planes the
// second plane's group is added to the first's. Only complete groups. src1 may be null.
void reduce_group(const float* src0, const float* src1, int64_t src_stride, int64_t group,
                  float* dst, int64_t dst_stride, int64_t rows, int64_t groups);
// The same for largest magnitudes; NaN is above all numbers.
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
