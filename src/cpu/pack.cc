// SPDX-License-Identifier: Apache-2.0
// Packing, compiled once per instruction set. Everything is made of three moves: rows copied (and
// converted), 32-bit elements transposed in 4 x 4 blocks, and two 16-bit rows zipped into one of
// pairs; k comes in blocks that fit a buffer in L2.
#include "cpu/pack.h"

#include <algorithm>
#include <cstring>

#include "coda/error.h"
#include "cpu/tile_gemm.h"
#include "cpu/tile_memory.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/pack.cc"
#include "hwy/foreach_target.h"  // NOLINT: must come before highway.h
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace coda::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Where there are no vectors, the loops over single elements below do it all.
#if HWY_TARGET != HWY_SCALAR

using Block = hn::CappedTag<uint32_t, 4>;
using Halves = hn::CappedTag<uint16_t, 8>;

HWY_INLINE hn::Vec<Block> load4(const uint32_t* p) { return hn::LoadU(Block(), p); }

// dst[j][i] = src[i][j] for four rows i at once; returns how many columns j were done.
HWY_INLINE int64_t transpose_blocks(const uint32_t* const* src, int64_t cols, uint32_t* dst,
                                    int64_t dst_stride) {
  const Block d;
  const hn::RepartitionToWide<Block> wide;
  int64_t j = 0;
  for (; j + 4 <= cols; j += 4) {
    const auto r0 = load4(src[0] + j);
    const auto r1 = load4(src[1] + j);
    const auto r2 = load4(src[2] + j);
    const auto r3 = load4(src[3] + j);
    const auto a = hn::BitCast(wide, hn::InterleaveLower(d, r0, r1));
    const auto b = hn::BitCast(wide, hn::InterleaveUpper(d, r0, r1));
    const auto e = hn::BitCast(wide, hn::InterleaveLower(d, r2, r3));
    const auto f = hn::BitCast(wide, hn::InterleaveUpper(d, r2, r3));
    uint32_t* out = dst + j * dst_stride;
    hn::StoreU(hn::BitCast(d, hn::InterleaveLower(wide, a, e)), d, out);
    hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(wide, a, e)), d, out + dst_stride);
    hn::StoreU(hn::BitCast(d, hn::InterleaveLower(wide, b, f)), d, out + 2 * dst_stride);
    hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(wide, b, f)), d, out + 3 * dst_stride);
  }
  return j;
}

// dst[j] = (row0[j], row1[j]) in vectors; returns how many were done.
HWY_INLINE int64_t zip_vectors(const uint16_t* row0, const uint16_t* row1, int64_t cols,
                               uint16_t* dst) {
  const Halves d;
  int64_t j = 0;
  for (; j + 8 <= cols; j += 8) {
    const auto a = hn::LoadU(d, row0 + j);
    const auto b = row1 != nullptr ? hn::LoadU(d, row1 + j) : hn::Zero(d);
    hn::StoreU(hn::InterleaveLower(d, a, b), d, dst + 2 * j);
    hn::StoreU(hn::InterleaveUpper(d, a, b), d, dst + 2 * j + 8);
  }
  return j;
}

#else

HWY_INLINE int64_t transpose_blocks(const uint32_t* const*, int64_t, uint32_t*, int64_t) {
  return 0;
}
HWY_INLINE int64_t zip_vectors(const uint16_t*, const uint16_t*, int64_t, uint16_t*) { return 0; }

#endif

// dst[j][i] = src[i][j]; the rows of src are given by their addresses (null: zeros).
void transpose(const uint32_t* const* src, int64_t rows, int64_t cols, uint32_t* dst,
               int64_t dst_stride) {
  for (int64_t i = 0; i < rows; i += 4) {
    const int64_t n = HWY_MIN(int64_t{4}, rows - i);
    bool is_block = n == 4;
    for (int64_t r = 0; r < n; ++r) is_block = is_block && src[i + r] != nullptr;
    const int64_t done = is_block ? transpose_blocks(src + i, cols, dst + i, dst_stride) : 0;
    for (int64_t r = i; r < i + n; ++r) {
      for (int64_t j = done; j < cols; ++j) {
        uint32_t value = 0;
        if (src[r] != nullptr) std::memcpy(&value, src[r] + j, 4);
        dst[j * dst_stride + r] = value;
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

}  // namespace coda::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace coda::cpu {

HWY_EXPORT(transpose);
HWY_EXPORT(zip_rows);

namespace {

constexpr int64_t kMaxDepth = block_depth(DType::bf16);
constexpr int64_t kChunk = kPanelColumns;  // rows of A or columns of B that are moved together

// Elements of the packed type: `count` of row `row` from column `col` on. In memory where it has
// that type, else converted into `buffer`.
const void* row_as(DType packed, const TensorView& view, int64_t row, int64_t col, int64_t count,
                   void* buffer) {
  if (view.dtype == packed) {
    return static_cast<const char*>(view.data) + (row * view.row_stride + col) * size_of(packed);
  }
  invariant(packed == DType::f32, "only fp32 panels hold converted operands");
  load_strip(view, {row, 1, nullptr}, col, count, static_cast<float*>(buffer), 0);
  return buffer;
}

// Operands whose k runs along columns: rows `row[0 .. n)` (-1: zeros) of the view become columns of
// dst, 32 bits (one float or one pair of bf16) at a time: dst[k][n].
void transpose_rows(DType packed, const TensorView& view, const int64_t* row, int64_t n, int64_t k0,
                    int64_t k, uint32_t* dst) {
  thread_local float buffer[kChunk * kMaxDepth];
  const uint32_t* rows[kChunk];
  const bool is_odd = packed == DType::bf16 && k % 2 != 0;
  const int64_t units = packed_depth(packed, k) * size_of(packed) / 4;
  const auto transpose = HWY_DYNAMIC_DISPATCH(transpose);
  for (int64_t i = 0; i < n; ++i) {
    rows[i] = nullptr;
    if (row[i] < 0) continue;
    float* own = buffer + i * kMaxDepth;
    const void* data = row_as(packed, view, row[i], k0, k, own);
    if (is_odd) {  // the last pair's second half is zero
      uint16_t* halves = reinterpret_cast<uint16_t*>(own);
      std::memcpy(halves, data, static_cast<size_t>(k) * 2);
      halves[k] = 0;
      data = own;
    }
    rows[i] = static_cast<const uint32_t*>(data);
  }
  transpose(rows, n, units, dst, n);
}

// Columns `columns[0 .. 64)` (-1: zeros) of row `row`, as the packed type.
void gather_row(DType packed, const TensorView& view, int64_t row, const int64_t* columns,
                void* dst) {
  const bool is_run =
      columns[0] >= 0 && columns[kPanelColumns - 1] == columns[0] + kPanelColumns - 1;
  if (is_run && packed == view.dtype) {
    std::memcpy(dst, row_as(packed, view, row, columns[0], kPanelColumns, nullptr),
                static_cast<size_t>(kPanelColumns * size_of(packed)));
    return;
  }
  for (int64_t j = 0; j < kPanelColumns;) {
    int64_t n = 1;  // a run of neighbours (columns ascend by one) or of zeros
    while (j + n < kPanelColumns && columns[j + n] == (columns[j] < 0 ? -1 : columns[j] + n)) ++n;
    char* out = static_cast<char*>(dst) + j * size_of(packed);
    if (columns[j] < 0) {
      std::memset(out, 0, static_cast<size_t>(n * size_of(packed)));
    } else {
      const void* in = row_as(packed, view, row, columns[j], n, out);
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
      const void* in = row_as(packed, a.view, m0 + i, k0, k, out);
      if (in != out) std::memcpy(out, in, static_cast<size_t>(k * bytes));
      if (depth > k) std::memset(out + k * bytes, 0, static_cast<size_t>(bytes));
    }
    return;
  }
  // Memory has rows of k: dst[i][kk] = a[k0 + kk][m0 + i]. Pairs of bf16 rows are zipped first.
  thread_local float buffer[kChunk * kMaxDepth];
  const auto transpose = HWY_DYNAMIC_DISPATCH(transpose);
  const auto zip_rows = HWY_DYNAMIC_DISPATCH(zip_rows);
  const int64_t units = depth * bytes / 4;
  const uint32_t* sources[kMaxDepth];
  for (int64_t i0 = 0; i0 < rows; i0 += kChunk) {
    const int64_t n = std::min(kChunk, rows - i0);
    for (int64_t u = 0; u < units; ++u) {
      float* own = buffer + u * kChunk;
      if (packed == DType::bf16) {
        const auto* row0 =
            static_cast<const uint16_t*>(row_as(packed, a.view, k0 + 2 * u, m0 + i0, n, nullptr));
        const auto* row1 = 2 * u + 1 < k ? row0 + a.view.row_stride : nullptr;
        zip_rows(row0, row1, n, reinterpret_cast<uint16_t*>(own));
        sources[u] = reinterpret_cast<const uint32_t*>(own);
      } else {
        sources[u] = static_cast<const uint32_t*>(row_as(packed, a.view, k0 + u, m0 + i0, n, own));
      }
    }
    transpose(sources, units, n, reinterpret_cast<uint32_t*>(out + i0 * depth * bytes), units);
  }
}

void pack_b_block(DType packed, const GemmOperand& b, const int64_t* columns, int64_t k0, int64_t k,
                  void* dst) {
  if (!b.k_along_rows) {
    transpose_rows(packed, b.view, columns, kPanelColumns, k0, k, static_cast<uint32_t*>(dst));
    return;
  }
  if (packed == DType::f32) {
    for (int64_t kk = 0; kk < k; ++kk) {
      gather_row(packed, b.view, k0 + kk, columns, static_cast<float*>(dst) + kk * kPanelColumns);
    }
    return;
  }
  const auto zip_rows = HWY_DYNAMIC_DISPATCH(zip_rows);
  auto* out = static_cast<uint16_t*>(dst);
  uint16_t row0[kPanelColumns];
  uint16_t row1[kPanelColumns];
  for (int64_t kk = 0; kk < k; kk += 2, out += 2 * kPanelColumns) {
    gather_row(packed, b.view, k0 + kk, columns, row0);
    if (kk + 1 < k) gather_row(packed, b.view, k0 + kk + 1, columns, row1);
    zip_rows(row0, kk + 1 < k ? row1 : nullptr, kPanelColumns, out);
  }
}

}  // namespace coda::cpu
#endif  // HWY_ONCE
