// SPDX-License-Identifier: Apache-2.0
// The GEMM kernel in portable vector code, for processors that libxsmm does not support and for
// testing the other kernels. Blocks of up to 6 rows and a few vectors of columns stay in registers
// over the whole k.
#include "cpu/tile_gemm.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/portable_gemm.cc"
#include "hwy/foreach_target.h"  // NOLINT: must come before highway.h
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace coda::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using F32 = hn::ScalableTag<float>;
using Vec = hn::Vec<F32>;

// As many accumulators as registers allow: 6 x 4 of 32, or 6 x 2 of 16.
constexpr int kRows = 6;
#if HWY_TARGET <= HWY_AVX3
constexpr int kVectors = 4;
#else
constexpr int kVectors = 2;
#endif

template <int Rows>
HWY_INLINE void block(const TileKernel& kernel, const float* HWY_RESTRICT a,
                      const float* HWY_RESTRICT b, float* c) {
  const F32 d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  Vec acc[Rows][kVectors];
  for (int i = 0; i < Rows; ++i) {
    for (int v = 0; v < kVectors; ++v) {
      acc[i][v] = hn::Zero(d);
    }
  }
  for (int64_t k = 0; k < kernel.k; ++k) {
    Vec bk[kVectors];
    for (int v = 0; v < kVectors; ++v) bk[v] = hn::LoadU(d, b + k * kPanelColumns + v * lanes);
    for (int i = 0; i < Rows; ++i) {
      const Vec ak = hn::Set(d, a[i * kernel.k + k]);
      for (int v = 0; v < kVectors; ++v) acc[i][v] = hn::MulAdd(ak, bk[v], acc[i][v]);
    }
  }
  for (int i = 0; i < Rows; ++i) {
    for (int v = 0; v < kVectors; ++v) {
      float* civ = c + i * kernel.c_stride + v * lanes;
      hn::StoreU(kernel.accumulate ? hn::Add(hn::LoadU(d, civ), acc[i][v]) : acc[i][v], d, civ);
    }
  }
}

void portable_tile(const TileKernel& kernel, const float* a, const float* b, float* c) {
  const int64_t step = kVectors * static_cast<int64_t>(hn::Lanes(F32()));
  for (int i = 0; i < kernel.rows; i += kRows) {
    const float* ai = a + static_cast<int64_t>(i) * kernel.k;
    for (int64_t j = 0; j < kPanelColumns; j += step) {
      float* cij = c + i * kernel.c_stride + j;
      switch (HWY_MIN(kRows, kernel.rows - i)) {
        case 1: block<1>(kernel, ai, b + j, cij); break;
        case 2: block<2>(kernel, ai, b + j, cij); break;
        case 3: block<3>(kernel, ai, b + j, cij); break;
        case 4: block<4>(kernel, ai, b + j, cij); break;
        case 5: block<5>(kernel, ai, b + j, cij); break;
        default: block<6>(kernel, ai, b + j, cij); break;
      }
    }
  }
}

}  // namespace coda::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace coda::cpu {

HWY_EXPORT(portable_tile);

void run_portable_tile(const TileKernel& kernel, const void* a, const void* b, float* c,
                       const Ahead&) {
  HWY_DYNAMIC_DISPATCH(portable_tile)(kernel, static_cast<const float*>(a),
                                      static_cast<const float*>(b), c);
}

}  // namespace coda::cpu
#endif  // HWY_ONCE
