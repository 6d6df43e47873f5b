// SPDX-License-Identifier: Apache-2.0
// The GEMM kernel for AVX-512 (fp32, and bf16 if the processor multiplies it). A block of 6 rows
// and 64 columns (32 at a narrow end) stays in 24 registers over the whole k and is added to C at
// the end. The kernel prefetches the operands of the next call, one cache line per step of k, which
// hides the latency of the last-level cache. It reads A by rows or by columns, as it is in memory,
// so A is never transposed.
#include "cpu/tile_gemm.h"

#if defined(__x86_64__)

#include <immintrin.h>

// Only functions with this attribute may use the instructions: the rest of the file, and what it
// includes, runs on every processor.
#define CODA_AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16")))

namespace coda::cpu {
namespace {

constexpr int kBlockRows = 6;

// The data of one step of k: a float, or a pair of bf16.
using Unit [[gnu::may_alias, gnu::aligned(2)]] = uint32_t;

// Sums of one row of C. Named members instead of an array, so that they stay in registers.
struct Sums {
  __m512 v0, v1, v2, v3;
};

CODA_AVX512 inline Sums zeros() {
  const __m512 zero = _mm512_setzero_ps();
  return {zero, zero, zero, zero};
}

template <int kVectors>
CODA_AVX512 inline Sums load(const float* b) {
  Sums s = zeros();
  s.v0 = _mm512_loadu_ps(b);
  s.v1 = _mm512_loadu_ps(b + 16);
  if constexpr (kVectors > 2) s.v2 = _mm512_loadu_ps(b + 32);
  if constexpr (kVectors > 2) s.v3 = _mm512_loadu_ps(b + 48);
  return s;
}

// c = s, or c + s with a full mask.
CODA_AVX512 inline void store(__m512 s, float* c, __mmask16 mask) {
  _mm512_storeu_ps(c, _mm512_mask_add_ps(s, mask, _mm512_maskz_loadu_ps(mask, c), s));
}

template <int kVectors>
CODA_AVX512 inline void store(const Sums& s, float* c, __mmask16 mask) {
  store(s.v0, c, mask);
  store(s.v1, c + 16, mask);
  if constexpr (kVectors > 2) store(s.v2, c + 32, mask);
  if constexpr (kVectors > 2) store(s.v3, c + 48, mask);
}

template <bool kBf16>
CODA_AVX512 inline __m512 multiply_add(__m512 a, __m512 b, __m512 c) {
  if constexpr (kBf16) return _mm512_dpbf16_ps(c, (__m512bh)a, (__m512bh)b);
  return _mm512_fmadd_ps(a, b, c);
}

template <bool kBf16, int kVectors>
CODA_AVX512 inline void step(Sums& s, Unit a, const Sums& b) {
  const __m512 ak = _mm512_castsi512_ps(_mm512_set1_epi32(static_cast<int>(a)));
  s.v0 = multiply_add<kBf16>(ak, b.v0, s.v0);
  s.v1 = multiply_add<kBf16>(ak, b.v1, s.v1);
  if constexpr (kVectors > 2) s.v2 = multiply_add<kBf16>(ak, b.v2, s.v2);
  if constexpr (kVectors > 2) s.v3 = multiply_add<kBf16>(ak, b.v3, s.v3);
}

// Element (i, k) of A is a[i * a_step + k] or, by columns, a[k * a_step + i]. Computes 16 kVectors
// columns of C; rows of B have 64.
template <int kRows, bool kBf16, bool kByColumns, int kVectors>
CODA_AVX512 void block(const Unit* a, int64_t a_step, const Unit* b, int64_t units, float* c,
                       int64_t c_stride, bool accumulate, Lines ahead) {
  const __mmask16 mask = accumulate ? 0xffff : 0;
  Sums s0 = zeros(), s1 = zeros(), s2 = zeros(), s3 = zeros(), s4 = zeros(), s5 = zeros();
  const int64_t i_step = kByColumns ? 1 : a_step;
  for (int64_t k = 0; k < units; ++k) {
    _mm_prefetch(ahead.data, _MM_HINT_T1);
    ahead.data += ahead.step;
    const Sums bk = load<kVectors>(reinterpret_cast<const float*>(b));
    b += kPanelColumns;
    step<kBf16, kVectors>(s0, a[0], bk);
    if constexpr (kRows > 1) step<kBf16, kVectors>(s1, a[i_step], bk);
    if constexpr (kRows > 2) step<kBf16, kVectors>(s2, a[2 * i_step], bk);
    if constexpr (kRows > 3) step<kBf16, kVectors>(s3, a[3 * i_step], bk);
    if constexpr (kRows > 4) step<kBf16, kVectors>(s4, a[4 * i_step], bk);
    if constexpr (kRows > 5) step<kBf16, kVectors>(s5, a[5 * i_step], bk);
    a += kByColumns ? a_step : 1;
  }
  store<kVectors>(s0, c, mask);
  if constexpr (kRows > 1) store<kVectors>(s1, c + c_stride, mask);
  if constexpr (kRows > 2) store<kVectors>(s2, c + 2 * c_stride, mask);
  if constexpr (kRows > 3) store<kVectors>(s3, c + 3 * c_stride, mask);
  if constexpr (kRows > 4) store<kVectors>(s4, c + 4 * c_stride, mask);
  if constexpr (kRows > 5) store<kVectors>(s5, c + 5 * c_stride, mask);
}

// Distributes the prefetches of a call: `units` lines for each block of rows.
class AheadCursor {
 public:
  AheadCursor(const Ahead& ahead, int64_t units) : ahead_(ahead), units_(units) {}
  Lines next(Lines none) {
    for (Lines& range : ahead_.lines) {
      if (range.count <= 0) continue;
      const Lines now = range;
      range.data += units_ * range.step;
      range.count -= units_;
      return now;
    }
    return none;
  }

 private:
  Ahead ahead_;
  int64_t units_;
};

template <bool kBf16, bool kByColumns, int kVectors>
void run_columns(const TileKernel& kernel, const void* a, const void* b, float* c,
                 const Ahead& ahead) {
  const int64_t units = kBf16 ? kernel.k / 2 : kernel.k;
  const auto* from_a = static_cast<const Unit*>(a);
  const auto* from_b = static_cast<const Unit*>(b);
  AheadCursor cursor(ahead, units);
  for (int left = kernel.rows; left > 0;) {
    const Lines next = cursor.next({static_cast<const char*>(b)});
    const auto rows = [&]<int kRows>() {
      block<kRows, kBf16, kByColumns, kVectors>(from_a, kernel.a_step, from_b, units, c,
                                                kernel.c_stride, kernel.accumulate, next);
      from_a += kByColumns ? kRows : kRows * kernel.a_step;
      c += kRows * kernel.c_stride;
      left -= kRows;
    };
    // 8 rows are split into 4 and 4, 7 into 4 and 3: blocks of 1 or 2 rows would wait for their own
    // sums.
    if (left >= kBlockRows && left != 7 && left != 8) {
      rows.template operator()<kBlockRows>();
    } else {
      switch (left) {
        case 1: rows.template operator()<1>(); break;
        case 2: rows.template operator()<2>(); break;
        case 3: rows.template operator()<3>(); break;
        case 5: rows.template operator()<5>(); break;
        default: rows.template operator()<4>(); break;
      }
    }
  }
}

template <bool kBf16, bool kByColumns>
void run(const TileKernel& kernel, const void* a, const void* b, float* c, const Ahead& ahead) {
  if (kernel.columns <= kPanelColumns / 2) {
    run_columns<kBf16, kByColumns, 2>(kernel, a, b, c, ahead);
  } else {
    run_columns<kBf16, kByColumns, 4>(kernel, a, b, c, ahead);
  }
}

}  // namespace

bool has_avx512() { return __builtin_cpu_supports("avx512f") != 0; }
bool has_avx512_bf16() { return has_avx512() && __builtin_cpu_supports("avx512bf16") != 0; }

TileKernel::Run avx512_tile(DType operands, bool a_by_columns) {
  if (operands == DType::bf16) return a_by_columns ? run<true, true> : run<true, false>;
  return a_by_columns ? run<false, true> : run<false, false>;
}

}  // namespace coda::cpu

#else

namespace coda::cpu {

bool has_avx512() { return false; }
bool has_avx512_bf16() { return false; }
TileKernel::Run avx512_tile(DType, bool) { return nullptr; }

}  // namespace coda::cpu

#endif
