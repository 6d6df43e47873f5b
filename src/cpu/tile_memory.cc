// SPDX-License-Identifier: Apache-2.0
// Moves strips to and from memory, compiled once per instruction set. The last, partial vector of a
// row goes through a small buffer, so that nothing outside the row is accessed and the same code
// converts every element.
#include "cpu/tile_memory.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/tile_memory.cc"
#include "hwy/foreach_target.h"  // NOLINT: must come before highway.h
#include "hwy/highway.h"

#include "cpu/vector_storage-inl.h"

HWY_BEFORE_NAMESPACE();
namespace coda::cpu::HWY_NAMESPACE {

template <class As>
typename As::T* row_of(const TensorView& tensor, const StripRows& rows, int64_t i) {
  const int64_t row = rows.row_index != nullptr ? rows.row_index[rows.row0 + i] : rows.row0 + i;
  return static_cast<typename As::T*>(tensor.data) + row * tensor.row_stride;
}

template <class As>
HWY_INLINE void load_run(const typename As::T* src, int64_t cols, float* out) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(F32()));
  int64_t j = 0;
  for (; j + lanes <= cols; j += lanes) hn::StoreU(As::load(src + j), F32(), out + j);
  if (j < cols) store_part<AsF32>(load_part<As>(src + j, cols - j), out + j, cols - j);
}

template <class As>
HWY_INLINE void store_run(const float* in, int64_t cols, typename As::T* out) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(F32()));
  int64_t j = 0;
  for (; j + lanes <= cols; j += lanes) As::store(hn::LoadU(F32(), in + j), out + j);
  if (j < cols) store_part<As>(load_part<AsF32>(in + j, cols - j), out + j, cols - j);
}

// Pairs are converted in a buffer of this length and (de)interleaved there.
constexpr int64_t kPairRun = 128;

HWY_INLINE void deinterleave(const float* in, int64_t pairs, float* out0, float* out1) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(F32()));
  int64_t j = 0;
  for (; j + lanes <= pairs; j += lanes) {
    Vec a;
    Vec b;
    hn::LoadInterleaved2(F32(), in + 2 * j, a, b);
    hn::StoreU(a, F32(), out0 + j);
    hn::StoreU(b, F32(), out1 + j);
  }
  for (; j < pairs; ++j) {
    out0[j] = in[2 * j];
    out1[j] = in[2 * j + 1];
  }
}

HWY_INLINE void interleave(const float* in0, const float* in1, int64_t pairs, float* out) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(F32()));
  int64_t j = 0;
  for (; j + lanes <= pairs; j += lanes) {
    hn::StoreInterleaved2(hn::LoadU(F32(), in0 + j), hn::LoadU(F32(), in1 + j), F32(), out + 2 * j);
  }
  for (; j < pairs; ++j) {
    out[2 * j] = in0[j];
    out[2 * j + 1] = in1[j];
  }
}

template <class As>
void load_pairs(const TensorView& tensor, const StripRows& rows, int64_t col, int64_t pairs,
                float* dst0, float* dst1, int64_t dst_stride) {
  alignas(64) float buffer[2 * kPairRun];
  for (int64_t i = 0; i < rows.rows; ++i) {
    for (int64_t j = 0; j < pairs; j += kPairRun) {
      const int64_t n = HWY_MIN(kPairRun, pairs - j);
      load_run<As>(row_of<As>(tensor, rows, i) + col + 2 * j, 2 * n, buffer);
      deinterleave(buffer, n, dst0 + i * dst_stride + j, dst1 + i * dst_stride + j);
    }
  }
}

template <class As>
void store_pairs(const TensorView& tensor, const StripRows& rows, int64_t col, int64_t pairs,
                 const float* src0, const float* src1, int64_t src_stride) {
  alignas(64) float buffer[2 * kPairRun];
  for (int64_t i = 0; i < rows.rows; ++i) {
    for (int64_t j = 0; j < pairs; j += kPairRun) {
      const int64_t n = HWY_MIN(kPairRun, pairs - j);
      interleave(src0 + i * src_stride + j, src1 + i * src_stride + j, n, buffer);
      store_run<As>(buffer, 2 * n, row_of<As>(tensor, rows, i) + col + 2 * j);
    }
  }
}

void load_strip_rows(const TensorView& t, const StripRows& r, std::span<const ColumnRun> runs,
                     float* dst, int64_t stride) {
  with_type(t.dtype, [&](auto as) {
    using As = decltype(as);
    for (int64_t i = 0; i < r.rows; ++i) {
      const auto* row = row_of<As>(t, r, i);
      for (const ColumnRun& run : runs) {
        load_run<As>(row + run.col, run.count, dst + i * stride + run.at);
      }
    }
  });
}

void load_strip_pair_rows(const TensorView& t, const StripRows& r, int64_t col, int64_t pairs,
                          float* dst0, float* dst1, int64_t stride) {
  with_type(t.dtype,
            [&](auto as) { load_pairs<decltype(as)>(t, r, col, pairs, dst0, dst1, stride); });
}

void store_strip_rows(const TensorView& t, const StripRows& r, std::span<const ColumnRun> runs,
                      const float* src, int64_t stride) {
  with_type(t.dtype, [&](auto as) {
    using As = decltype(as);
    for (int64_t i = 0; i < r.rows; ++i) {
      auto* row = row_of<As>(t, r, i);
      for (const ColumnRun& run : runs) {
        store_run<As>(src + i * stride + run.at, run.count, row + run.col);
      }
    }
  });
}

// Converts a run at a time, as every store does, then scatters it.
void store_strip_columns(const TensorView& t, const StripRows& r, std::span<const ColumnRun> runs,
                         const float* src, int64_t stride) {
  with_type(t.dtype, [&](auto as) {
    using As = decltype(as);
    using T = typename As::T;
    alignas(64) T buffer[kPairRun];
    for (int64_t i = 0; i < r.rows; ++i) {
      T* const column = static_cast<T*>(t.data) + r.row0 + i;
      for (const ColumnRun& run : runs) {
        for (int64_t j = 0; j < run.count; j += kPairRun) {
          const int64_t n = HWY_MIN(kPairRun, run.count - j);
          store_run<As>(src + i * stride + run.at + j, n, buffer);
          for (int64_t k = 0; k < n; ++k) column[(run.col + j + k) * t.row_stride] = buffer[k];
        }
      }
    }
  });
}

void store_strip_pair_rows(const TensorView& t, const StripRows& r, int64_t col, int64_t pairs,
                           const float* src0, const float* src1, int64_t stride) {
  with_type(t.dtype,
            [&](auto as) { store_pairs<decltype(as)>(t, r, col, pairs, src0, src1, stride); });
}

}  // namespace coda::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace coda::cpu {

HWY_EXPORT(load_strip_rows);
HWY_EXPORT(load_strip_pair_rows);
HWY_EXPORT(store_strip_rows);
HWY_EXPORT(store_strip_columns);
HWY_EXPORT(store_strip_pair_rows);

void load_strip(const TensorView& tensor, const StripRows& rows, std::span<const ColumnRun> runs,
                float* dst, int64_t dst_stride) {
  HWY_DYNAMIC_DISPATCH(load_strip_rows)(tensor, rows, runs, dst, dst_stride);
}

void load_strip_pairs(const TensorView& tensor, const StripRows& rows, int64_t col, int64_t pairs,
                      float* dst0, float* dst1, int64_t dst_stride) {
  HWY_DYNAMIC_DISPATCH(load_strip_pair_rows)(tensor, rows, col, pairs, dst0, dst1, dst_stride);
}

void store_strip(const TensorView& tensor, const StripRows& rows, std::span<const ColumnRun> runs,
                 const float* src, int64_t src_stride) {
  HWY_DYNAMIC_DISPATCH(store_strip_rows)(tensor, rows, runs, src, src_stride);
}

void store_strip_transposed(const TensorView& tensor, const StripRows& rows,
                            std::span<const ColumnRun> runs, const float* src, int64_t src_stride) {
  HWY_DYNAMIC_DISPATCH(store_strip_columns)(tensor, rows, runs, src, src_stride);
}

void store_strip_pairs(const TensorView& tensor, const StripRows& rows, int64_t col, int64_t pairs,
                       const float* src0, const float* src1, int64_t src_stride) {
  HWY_DYNAMIC_DISPATCH(store_strip_pair_rows)(tensor, rows, col, pairs, src0, src1, src_stride);
}

}  // namespace coda::cpu
#endif  // HWY_ONCE
