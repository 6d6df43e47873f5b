// SPDX-License-Identifier: Apache-2.0
// The small fp32 matrix products of attention, for whichever instruction set includes this file: it
// is compiled once for each (Highway), so its include guard is one for each. Every element of a
// product is one chain of multiply-adds in ascending order of the inner index, whatever the sizes,
// so a row's bits depend on its own operands only. Rows and columns outside a causal mask are
// skipped, not zeroed.
#if defined(CODA_CPU_ATTENTION_GEMM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CODA_CPU_ATTENTION_GEMM_INL_H_
#undef CODA_CPU_ATTENTION_GEMM_INL_H_
#else
#define CODA_CPU_ATTENTION_GEMM_INL_H_
#endif

#include <algorithm>
#include <cstddef>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace coda::cpu::attention::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using FloatTag = hn::ScalableTag<float>;
using FloatVector = hn::Vec<FloatTag>;

// What a product starts from: nothing, what C holds, or what C holds times one factor a row.
enum class Start { zero, add, scale };

// Which part of a product of a block on the diagonal is wanted (row i of the block is query i,
// column i key i).
enum class Mask {
  none,
  columns,     // C[i, j] for j <= i; more may be written, to the end of a panel
  inner_to,    // sum over l <= i
  inner_from,  // sum over l >= i, from the first row of its group on: A must hold zeros there
};

// C[rows, cols] = start + A[rows, inner] · B[inner, cols]. Strides are in floats. Rows are computed
// in groups of up to 12, columns in whole vectors: A, B and C must be readable and C writable to
// the rounded-up sizes.
struct Product {
  const float* a;
  size_t a_row, a_inner;
  const float* b;
  size_t b_row;
  float* c;
  size_t c_row;
  size_t rows, cols, inner;
  Start start = Start::zero;
  const float* scale = nullptr;  // [rows] if start is scale
};

// Accumulators of a group fill the register file but for B's vectors and one broadcast: 32 or 16
// registers.
inline constexpr bool kManyRegisters = HWY_TARGET <= HWY_AVX3;
inline constexpr int kMaxVectors = kManyRegisters ? 4 : 3;
constexpr int rows_of_group(int vectors) {
  if (kManyRegisters) return vectors == 4 ? 6 : vectors == 3 ? 8 : 12;
  return vectors == 3 ? 4 : vectors == 2 ? 6 : 8;
}

template <int Rows, int Vectors, Mask Part>
HWY_INLINE void multiply_group(const Product& p, size_t row, size_t col) {
  const FloatTag d;
  const size_t lanes = hn::Lanes(d);
  float* HWY_RESTRICT c = p.c + row * p.c_row + col;
  FloatVector acc[Rows][Vectors];
  if (p.start == Start::zero) {
#pragma GCC unroll 12
    for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 4
      for (int j = 0; j < Vectors; ++j) acc[i][j] = hn::Zero(d);
  } else {
#pragma GCC unroll 12
    for (int i = 0; i < Rows; ++i) {
      const FloatVector factor = hn::Set(d, p.start == Start::scale ? p.scale[row + i] : 1.0f);
#pragma GCC unroll 4
      for (int j = 0; j < Vectors; ++j)
        acc[i][j] = hn::Mul(factor, hn::LoadU(d, c + i * p.c_row + j * lanes));
    }
  }

  const size_t from = Part == Mask::inner_from ? row : 0;
  const size_t to = Part == Mask::inner_to ? std::min(p.inner, row + 1) : p.inner;
  const float* a = p.a + row * p.a_row + from * p.a_inner;
  const float* b = p.b + from * p.b_row + col;
  for (size_t l = from; l < to; ++l, a += p.a_inner, b += p.b_row) {
    FloatVector bv[Vectors];
#pragma GCC unroll 4
    for (int j = 0; j < Vectors; ++j) bv[j] = hn::LoadU(d, b + j * lanes);
#pragma GCC unroll 12
    for (int i = 0; i < Rows; ++i) {
      const FloatVector av = hn::Set(d, a[i * p.a_row]);
#pragma GCC unroll 4
      for (int j = 0; j < Vectors; ++j) acc[i][j] = hn::MulAdd(av, bv[j], acc[i][j]);
    }
  }
  if constexpr (Part == Mask::inner_to) {  // row + t takes part in the last steps up to its own
#pragma GCC unroll 12
    for (int t = 1; t < Rows; ++t) {
      if (row + t >= p.inner) break;
      FloatVector bv[Vectors];
#pragma GCC unroll 4
      for (int j = 0; j < Vectors; ++j) bv[j] = hn::LoadU(d, b + j * lanes);
#pragma GCC unroll 12
      for (int i = t; i < Rows; ++i) {
        const FloatVector av = hn::Set(d, a[i * p.a_row]);
#pragma GCC unroll 4
        for (int j = 0; j < Vectors; ++j) acc[i][j] = hn::MulAdd(av, bv[j], acc[i][j]);
      }
      a += p.a_inner;
      b += p.b_row;
    }
  }

#pragma GCC unroll 12
  for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 4
    for (int j = 0; j < Vectors; ++j) hn::StoreU(acc[i][j], d, c + i * p.c_row + j * lanes);
}

template <int Vectors, Mask Part>
HWY_NOINLINE void multiply_panel(const Product& p, size_t col) {
  constexpr int kRows = rows_of_group(Vectors);
  for (size_t row = 0; row < p.rows; row += kRows) {
    if (Part == Mask::columns && col > row + kRows - 1) continue;
    multiply_group<kRows, Vectors, Part>(p, row, col);
  }
}

template <Mask Part>
HWY_INLINE void multiply(const Product& p) {
  const size_t lanes = hn::Lanes(FloatTag());
  const size_t vectors = (p.cols + lanes - 1) / lanes;
  // Narrow panels follow a diagonal closely.
  constexpr size_t kMost = Part == Mask::columns ? 1 : kMaxVectors;
  const size_t panels = (vectors + kMost - 1) / kMost;
  size_t done = 0;
  for (size_t panel = 0; panel < panels; ++panel) {
    const size_t width = (vectors - done + panels - panel - 1) / (panels - panel);
    const size_t col = done * lanes;
    switch (width) {
      case 1: multiply_panel<1, Part>(p, col); break;
      case 2: multiply_panel<2, Part>(p, col); break;
      case 3: multiply_panel<3, Part>(p, col); break;
      default:
        if constexpr (kMost >= 4) multiply_panel<4, Part>(p, col);
        break;
    }
    done += width;
  }
}

}  // namespace coda::cpu::attention::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard of one instruction set
