// SPDX-License-Identifier: Apache-2.0
// Packing, compiled once per instruction set. It consists of three moves: copying (and converting)
// rows, transposing squares of 32-bit elements, and zipping two 16-bit rows into a row of pairs. k
// is processed in blocks that fit into a buffer in L2.
#include "cpu/pack.h"

#include <algorithm>
#include <cstring>

#include "coda/error.h"
#include "coda/program.h"
#include "cpu/tile_gemm.h"
#include "cpu/tile_memory.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/pack.cc"
#include "hwy/foreach_target.h"  // NOLINT: must come before highway.h
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace coda::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// On targets with narrower vectors (which targets exist depends on the version of Highway), the
// loops over single elements below do all the work.
#if HWY_MAX_BYTES >= 32

using D32 = hn::ScalableTag<uint32_t>;
using V32 = hn::Vec<D32>;
using Halves = hn::Rebind<uint16_t, D32>;  // as many 16-bit lanes as a vector has 32-bit ones

// A square as wide as a vector; blocks are its 128-bit parts, 4 elements each.
#if HWY_MAX_BYTES == 32
constexpr int64_t kSquare = 8;
#else
constexpr int64_t kSquare = 16;
#endif
constexpr int kBlocks = kSquare / 4;

// v[b] block g = w[g] block b.
HWY_INLINE void transpose_blocks(const V32* w, V32* v) {
  const D32 d;
#if HWY_MAX_BYTES == 32
  v[0] = hn::ConcatLowerLower(d, w[1], w[0]);
  v[1] = hn::ConcatUpperUpper(d, w[1], w[0]);
#else
  const V32 even01 = hn::OddEvenBlocks(hn::SwapAdjacentBlocks(w[1]), w[0]);
  const V32 odd01 = hn::OddEvenBlocks(w[1], hn::SwapAdjacentBlocks(w[0]));
  const V32 even23 = hn::OddEvenBlocks(hn::SwapAdjacentBlocks(w[3]), w[2]);
  const V32 odd23 = hn::OddEvenBlocks(w[3], hn::SwapAdjacentBlocks(w[2]));
  v[0] = hn::ConcatLowerLower(d, even23, even01);
  v[1] = hn::ConcatLowerLower(d, odd23, odd01);
  v[2] = hn::ConcatUpperUpper(d, even23, even01);
  v[3] = hn::ConcatUpperUpper(d, odd23, odd01);
#endif
}

// dst[j][i] = src[i][col + j] for a square: whole cache lines in, whole cache lines out (AVX-512).
HWY_INLINE void transpose_square(const uint32_t* const* src, int64_t col, uint32_t* dst,
                                 int64_t dst_stride) {
  const D32 d;
  const hn::RepartitionToWide<D32> wide;
  V32 parts[4][kBlocks];  // [c][g]: block b holds column 4 b + c of the rows 4 g .. 4 g + 3
  for (int g = 0; g < kBlocks; ++g) {
    const V32 r0 = hn::LoadU(d, src[4 * g] + col);
    const V32 r1 = hn::LoadU(d, src[4 * g + 1] + col);
    const V32 r2 = hn::LoadU(d, src[4 * g + 2] + col);
    const V32 r3 = hn::LoadU(d, src[4 * g + 3] + col);
    const auto a = hn::BitCast(wide, hn::InterleaveLower(d, r0, r1));
    const auto b = hn::BitCast(wide, hn::InterleaveUpper(d, r0, r1));
    const auto e = hn::BitCast(wide, hn::InterleaveLower(d, r2, r3));
    const auto f = hn::BitCast(wide, hn::InterleaveUpper(d, r2, r3));
    parts[0][g] = hn::BitCast(d, hn::InterleaveLower(wide, a, e));
    parts[1][g] = hn::BitCast(d, hn::InterleaveUpper(wide, a, e));
    parts[2][g] = hn::BitCast(d, hn::InterleaveLower(wide, b, f));
    parts[3][g] = hn::BitCast(d, hn::InterleaveUpper(wide, b, f));
  }
  for (int c = 0; c < 4; ++c) {
    V32 columns[kBlocks];
    transpose_blocks(parts[c], columns);
    for (int b = 0; b < kBlocks; ++b) {
      hn::StoreU(columns[b], d, dst + (4 * b + c) * dst_stride);
    }
  }
}

// dst[j] = (row0[j], row1[j]) in vectors; returns how many were done.
HWY_INLINE int64_t zip_vectors(const uint16_t* row0, const uint16_t* row1, int64_t cols,
                               uint16_t* dst) {
  const D32 d;
  const Halves half;
  int64_t j = 0;
  for (; j + kSquare <= cols; j += kSquare) {
    V32 pairs = hn::PromoteTo(d, hn::LoadU(half, row0 + j));
    if (row1 != nullptr) {
      pairs = hn::Or(pairs, hn::ShiftLeft<16>(hn::PromoteTo(d, hn::LoadU(half, row1 + j))));
    }
    hn::StoreU(pairs, d, reinterpret_cast<uint32_t*>(dst) + j);
  }
  return j;
}

#else

constexpr int64_t kSquare = 16;
HWY_INLINE void transpose_square(const uint32_t* const* src, int64_t col, uint32_t* dst,
                                 int64_t dst_stride) {
  for (int64_t i = 0; i < kSquare; ++i) {
    for (int64_t j = 0; j < kSquare; ++j) {
      std::memcpy(dst + j * dst_stride + i, src[i] + col + j, 4);
    }
  }
}
HWY_INLINE int64_t zip_vectors(const uint16_t*, const uint16_t*, int64_t, uint16_t*) { return 0; }

#endif

// dst[j][i] = src[i][j]; `src` has the addresses of the rows. Meanwhile prefetches the same columns
// of the rows `ahead` (may be null).
void transpose(const uint32_t* const* src, const uint32_t* const* ahead, int64_t rows, int64_t cols,
               uint32_t* dst, int64_t dst_stride) {
  for (int64_t i = 0; i < rows; i += kSquare) {
    const int64_t height = HWY_MIN(kSquare, rows - i);
    for (int64_t j = 0; j < cols; j += kSquare) {
      const int64_t width = HWY_MIN(kSquare, cols - j);
      uint32_t* out = dst + j * dst_stride + i;
      for (int64_t r = 0; ahead != nullptr && r < height; ++r)
        __builtin_prefetch(ahead[i + r] + j, 0, 2);
      if (height == kSquare && width == kSquare) {
        transpose_square(src + i, j, out, dst_stride);
        continue;
      }
      for (int64_t r = 0; r < height; ++r) {
        for (int64_t c = 0; c < width; ++c)
          std::memcpy(out + c * dst_stride + r, src[i + r] + j + c, 4);
      }
    }
  }
}

// dst[j] = (row0[j], row1[j]); row1 may be null (zeros).
void zip_rows(const uint16_t* row0, const uint16_t* row1, int64_t cols, uint16_t* dst) {
  for (int64_t j = zip_vectors(row0, row1, cols, dst); j < cols; ++j) {
    dst[2 * j] = row0[j];
    dst[2 * j + 1] = row1 != nullptr ? row1[j] : uint16_t{0};
  }
}

// As zip_rows, 64 columns to each panel of B.
void zip_panels(const uint16_t* row0, const uint16_t* row1, int64_t panels, uint16_t* dst,
                int64_t panel_elements) {
  for (int64_t p = 0; p < panels; ++p) {
    const int64_t at = p * kPanelColumns;
    zip_rows(row0 + at, row1 != nullptr ? row1 + at : nullptr, kPanelColumns,
             dst + p * panel_elements);
  }
}

}  // namespace coda::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace coda::cpu {

HWY_EXPORT(transpose);
HWY_EXPORT(zip_rows);
HWY_EXPORT(zip_panels);

namespace {

alignas(64) constexpr uint32_t kZeros[kMaxDepth] = {};
constexpr int64_t kChunk = kPanelColumns;  // columns of B that are moved at once

// Elements of the packed type: `count` of row `row` from column `col` on. Returns the tensor's
// memory if it has that type; else converts into `buffer`.
const void* row_as(DType packed, const GemmOperand& operand, int64_t row, int64_t col,
                   int64_t count, void* buffer) {
  const TensorView& view = operand.view;
  if (view.dtype == packed) {
    return static_cast<const char*>(view.data) + (row * view.row_stride + col) * size_of(packed);
  }
  invariant(packed == DType::f32, "only fp32 panels hold converted operands");
  auto* values = static_cast<float*>(buffer);
  load_strip(view, {row, 1, nullptr}, col, count, values, 0);
  if (operand.scales == nullptr) return buffer;
  const TensorView& scales = *operand.scales;
  const auto* data = static_cast<const float*>(scales.data);
  const float* of_row =
      data + (scales.rows == view.rows ? row : row / kScaleSpan) * scales.row_stride;
  const float scale = of_row[col / kScaleSpan];  // a block of k in fp32 is within one span
  for (int64_t j = 0; j < count; ++j) values[j] *= scale;
  return buffer;
}

constexpr int64_t kSquareRows = 16;
// Rows that are far apart in memory defeat hardware prefetching, so rows are prefetched this many
// rows ahead (with several panels, as many lines).
constexpr int64_t kRowsAhead = 24;

void prefetch_row(const TensorView& view, int64_t row, int64_t col, int64_t count) {
  if (row >= view.rows || col < 0) return;
  const char* first =
      static_cast<const char*>(view.data) + (row * view.row_stride + col) * size_of(view.dtype);
  const char* last = first + count * size_of(view.dtype) - 1;
  for (const char* p = first; p <= last; p += 64) __builtin_prefetch(p, 0, 2);
  __builtin_prefetch(last, 0, 2);
}

bool is_run(const int64_t* columns, int64_t count) {
  return columns[0] >= 0 && columns[count - 1] == columns[0] + count - 1;
}

// The row to prefetch while row i of n is transposed: 16 rows further, or after the last row in the
// next block of k or the next panel.
const uint32_t* row_ahead(const TensorView& view, const int64_t* row, int64_t n, int64_t i,
                          int64_t k0, int64_t k) {
  int64_t next = row[(i + kSquareRows) % n];
  int64_t col = k0;
  if (i + kSquareRows >= n) {
    col = k0 + k < view.cols ? k0 + k : 0;
    if (col == 0) next += n;
  }
  if (next < 0 || next >= view.rows) return kZeros;
  return reinterpret_cast<const uint32_t*>(static_cast<const char*>(view.data) +
                                           (next * view.row_stride + col) * size_of(view.dtype));
}

// Operands whose k runs along columns: rows `row[0 .. n)` (-1: zeros) of the view become columns of
// dst, 32 bits (one float or one pair of bf16) at a time: dst[k][n].
void transpose_rows(DType packed, const GemmOperand& operand, const int64_t* row, int64_t n,
                    int64_t k0, int64_t k, uint32_t* dst) {
  alignas(64) float buffer[kChunk * kMaxDepth];
  const uint32_t* rows[kChunk];
  const bool is_odd = packed == DType::bf16 && k % 2 != 0;
  const int64_t units = packed_depth(packed, k) * size_of(packed) / 4;
  const auto transpose = HWY_DYNAMIC_DISPATCH(transpose);
  for (int64_t i = 0; i < n; ++i) {
    rows[i] = kZeros;
    if (row[i] < 0) continue;
    float* own = buffer + i * kMaxDepth;
    const void* data = row_as(packed, operand, row[i], k0, k, own);
    if (is_odd) {  // the last pair's second half is zero
      uint16_t* halves = reinterpret_cast<uint16_t*>(own);
      std::memcpy(halves, data, static_cast<size_t>(k) * 2);
      halves[k] = 0;
      data = own;
    }
    rows[i] = static_cast<const uint32_t*>(data);
  }
  const uint32_t* ahead[kChunk];
  for (int64_t i = 0; i < n; ++i) ahead[i] = row_ahead(operand.view, row, n, i, k0, k);
  transpose(rows, ahead, n, units, dst, n);
}

// Columns `columns[0 .. 64)` (-1: zeros) of row `row`, as the packed type.
void gather_row(DType packed, const GemmOperand& operand, int64_t row, const int64_t* columns,
                void* dst) {
  if (is_run(columns, kPanelColumns)) {
    const void* in = row_as(packed, operand, row, columns[0], kPanelColumns, dst);
    if (in != dst) std::memcpy(dst, in, static_cast<size_t>(kPanelColumns * size_of(packed)));
    return;
  }
  for (int64_t j = 0; j < kPanelColumns;) {
    int64_t n = 1;  // a run of neighbours (columns ascend by one) or of zeros
    while (j + n < kPanelColumns && columns[j + n] == (columns[j] < 0 ? -1 : columns[j] + n)) ++n;
    char* out = static_cast<char*>(dst) + j * size_of(packed);
    if (columns[j] < 0) {
      std::memset(out, 0, static_cast<size_t>(n * size_of(packed)));
    } else {
      const void* in = row_as(packed, operand, row, columns[j], n, out);
      if (in != out) std::memcpy(out, in, static_cast<size_t>(n * size_of(packed)));
    }
    j += n;
  }
}

}  // namespace

void pack_a_block(DType packed, const GemmOperand& a, int64_t m0, int64_t rows, int64_t k0,
                  int64_t k, void* dst) {
  const int64_t depth = packed_depth(packed, k);
  const int64_t bytes = size_of(packed);
  char* out = static_cast<char*>(dst);
  if (!a.k_along_rows) {
    for (int64_t i = 0; i < rows; ++i, out += depth * bytes) {
      const void* in = row_as(packed, a, m0 + i, k0, k, out);
      if (in != out) std::memcpy(out, in, static_cast<size_t>(k * bytes));
      if (depth > k) std::memset(out + k * bytes, 0, static_cast<size_t>(bytes));
    }
    return;
  }
  // Memory has rows of k: dst[i][kk] = a[k0 + kk][m0 + i]. Processes 16 units (floats, or zipped
  // pairs of bf16 rows) at a time, which is one cache line of each row of dst.
  constexpr int64_t kUnits = 16;
  constexpr int64_t kRows = 128;  // of A at once: whole lines of memory, and few visits of a row
  alignas(64) float buffer[kUnits * kRows];
  const auto transpose = HWY_DYNAMIC_DISPATCH(transpose);
  const auto zip_rows = HWY_DYNAMIC_DISPATCH(zip_rows);
  const int64_t units = depth * bytes / 4;
  const int64_t rows_of_unit = 4 / bytes;
  for (int64_t i0 = 0; i0 < rows; i0 += kRows) {
    const int64_t n = std::min(kRows, rows - i0);
    auto* columns = reinterpret_cast<uint32_t*>(out + i0 * depth * bytes);
    for (int64_t u0 = 0; u0 < units; u0 += kUnits) {
      const int64_t count = std::min(kUnits, units - u0);
      const uint32_t* sources[kUnits];
      for (int64_t u = 0; u < count; ++u) {
        float* own = buffer + u * kRows;
        const int64_t kk = (u0 + u) * rows_of_unit;
        for (int64_t r = 0; r < rows_of_unit; ++r) {
          prefetch_row(a.view, k0 + kk + r + kRowsAhead * rows_of_unit, m0 + i0, n);
        }
        const void* in = row_as(packed, a, k0 + kk, m0 + i0, n, own);
        if (packed == DType::bf16) {
          const auto* row0 = static_cast<const uint16_t*>(in);
          const auto* row1 = kk + 1 < k ? row0 + a.view.row_stride : nullptr;
          zip_rows(row0, row1, n, reinterpret_cast<uint16_t*>(own));
          in = own;
        }
        sources[u] = static_cast<const uint32_t*>(in);
      }
      transpose(sources, nullptr, count, n, columns + u0, units);
    }
  }
}

void pack_a_block_by_columns(DType packed, const GemmOperand& a, int64_t m0, int64_t rows,
                             int64_t k0, int64_t k, void* dst) {
  invariant(a.k_along_rows, "a block of A is packed by columns where k runs along its rows");
  char* out = static_cast<char*>(dst);
  if (packed == DType::f32) {
    const int64_t bytes = rows * size_of(packed);
    for (int64_t kk = 0; kk < k; ++kk, out += bytes) {
      prefetch_row(a.view, k0 + kk + kRowsAhead, m0, rows);
      const void* in = row_as(packed, a, k0 + kk, m0, rows, out);
      if (in != out) std::memcpy(out, in, static_cast<size_t>(bytes));
    }
    return;
  }
  const auto zip_rows = HWY_DYNAMIC_DISPATCH(zip_rows);
  for (int64_t kk = 0; kk < k; kk += 2, out += 2 * rows * size_of(packed)) {
    prefetch_row(a.view, k0 + kk + kRowsAhead, m0, rows);
    prefetch_row(a.view, k0 + kk + kRowsAhead + 1, m0, rows);
    const auto* in = static_cast<const uint16_t*>(row_as(packed, a, k0 + kk, m0, rows, nullptr));
    zip_rows(in, kk + 1 < k ? in + a.view.row_stride : nullptr, rows,
             reinterpret_cast<uint16_t*>(out));
  }
}

void pack_b_blocks(DType packed, const GemmOperand& b, const int64_t* columns, int64_t panels,
                   int64_t k0, int64_t k, void* dst, int64_t panel_bytes) {
  if (!b.k_along_rows) {
    for (int64_t p = 0; p < panels; ++p) {
      transpose_rows(packed, b, columns + p * kPanelColumns, kPanelColumns, k0, k,
                     reinterpret_cast<uint32_t*>(static_cast<char*>(dst) + p * panel_bytes));
    }
    return;
  }
  const auto zip_panels = HWY_DYNAMIC_DISPATCH(zip_panels);
  const int64_t count = panels * kPanelColumns;
  const bool run = is_run(columns, count);
  const int64_t rows_of_unit = packed == DType::bf16 ? 2 : 1;
  const int64_t rows_ahead = std::max(kRowsAhead / panels, 2 * rows_of_unit);
  for (int64_t kk = 0; kk < k; kk += rows_of_unit) {
    const int64_t row = k0 + kk;
    const bool is_pair = kk + 1 < k;
    char* out = static_cast<char*>(dst) + kk * kPanelColumns * size_of(packed);
    if (run) {
      for (int64_t r = 0; r < rows_of_unit; ++r) {
        prefetch_row(b.view, row + rows_ahead + r, columns[0], count);
      }
    }
    if (run && packed == DType::bf16) {
      const auto* in =
          static_cast<const uint16_t*>(row_as(packed, b, row, columns[0], count, nullptr));
      zip_panels(in, is_pair ? in + b.view.row_stride : nullptr, panels,
                 reinterpret_cast<uint16_t*>(out), panel_bytes / 2);
      continue;
    }
    for (int64_t p = 0; p < panels; ++p, out += panel_bytes) {
      const int64_t* own = columns + p * kPanelColumns;
      for (int64_t r = 0; r < rows_of_unit && !run; ++r) {
        prefetch_row(b.view, row + rows_ahead + r, own[0], kPanelColumns);
      }
      if (packed == DType::f32) {
        gather_row(packed, b, row, own, out);
        continue;
      }
      uint16_t row0[kPanelColumns];
      uint16_t row1[kPanelColumns];
      gather_row(packed, b, row, own, row0);
      if (is_pair) gather_row(packed, b, row + 1, own, row1);
      zip_panels(row0, is_pair ? row1 : nullptr, 1, reinterpret_cast<uint16_t*>(out), 0);
    }
  }
}

}  // namespace coda::cpu
#endif  // HWY_ONCE
