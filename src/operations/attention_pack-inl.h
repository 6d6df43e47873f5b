// SPDX-License-Identifier: Apache-2.0
// Rows of a matrix in f32, bf16 or f16 to padded fp32 blocks and back, and the transpose of a
// block, for whichever instruction set includes this file. Padding is zero; a store rounds to
// nearest even.
#if defined(CODA_CPU_ATTENTION_PACK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CODA_CPU_ATTENTION_PACK_INL_H_
#undef CODA_CPU_ATTENTION_PACK_INL_H_
#else
#define CODA_CPU_ATTENTION_PACK_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "base/vector_convert-inl.h"
#include "coda/float16.h"
#include "coda/tensor.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace coda::cpu::attention::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// [rows, cols] of `from` at (row, col), times `factor`, to `to` [rows, stride]; zeros from cols to
// stride.
HWY_INLINE void pack_rows(const TensorView& from, size_t row, size_t rows, size_t col, size_t cols,
                          float factor, float* to, size_t stride) {
  const hn::ScalableTag<float> d;
  const hn::RebindToUnsigned<decltype(d)> du;
  const hn::Rebind<uint16_t, decltype(d)> dh;
  const size_t lanes = hn::Lanes(d), whole = cols / lanes * lanes;
  const auto scale = hn::Set(d, factor);
  for (size_t r = 0; r < rows; ++r, to += stride) {
    const size_t at = (row + r) * from.row_stride + col;
    size_t c = 0;
    if (from.dtype == DType::bf16) {
      const uint16_t* in = static_cast<const uint16_t*>(from.data) + at;
      for (; c < whole; c += lanes) {
        const auto bits = hn::ShiftLeft<16>(hn::PromoteTo(du, hn::LoadU(dh, in + c)));
        hn::StoreU(hn::Mul(hn::BitCast(d, bits), scale), d, to + c);
      }
      for (; c < cols; ++c) to[c] = float_from_bf16(in[c]) * factor;
    } else if (from.dtype == DType::f16) {
      namespace convert = cpu::HWY_NAMESPACE;
      const uint16_t* in = static_cast<const uint16_t*>(from.data) + at;
      for (; c < whole; c += lanes) {
        const auto value = convert::float_of_f16_bits(convert::load_u16(in + c));
        hn::StoreU(hn::Mul(value, scale), d, to + c);
      }
      for (; c < cols; ++c) to[c] = float_from_f16(in[c]) * factor;
    } else {
      const float* in = static_cast<const float*>(from.data) + at;
      for (; c < whole; c += lanes) hn::StoreU(hn::Mul(hn::LoadU(d, in + c), scale), d, to + c);
      for (; c < cols; ++c) to[c] = in[c] * factor;
    }
    for (; c < stride; ++c) to[c] = 0;
  }
}

// [rows, cols] of `from` [rows, stride], times row_factors[row] (if given) and `factor`, to `to` at
// (row, col).
HWY_INLINE void unpack_rows(const float* from, size_t stride, const float* row_factors,
                            float factor, const TensorView& to, size_t row, size_t rows, size_t col,
                            size_t cols) {
  const hn::ScalableTag<float> d;
  const hn::RebindToUnsigned<decltype(d)> du;
  const hn::RebindToSigned<decltype(d)> di;
  const hn::Rebind<uint16_t, decltype(d)> dh;
  const size_t lanes = hn::Lanes(d), whole = cols / lanes * lanes;
  for (size_t r = 0; r < rows; ++r, from += stride) {
    const float f = row_factors != nullptr ? row_factors[r] * factor : factor;
    const auto scale = hn::Set(d, f);
    const size_t at = (row + r) * to.row_stride + col;
    size_t c = 0;
    if (to.dtype == DType::bf16) {
      uint16_t* out = static_cast<uint16_t*>(to.data) + at;
      for (; c < whole; c += lanes) {
        const auto value = hn::Mul(hn::LoadU(d, from + c), scale);
        const auto bits = hn::BitCast(du, value);
        const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
        const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7fffu)));
        const auto quiet = hn::Or(bits, hn::Set(du, 0x00400000u));
        const auto kept = hn::IfThenElse(hn::RebindMask(du, hn::Ne(value, value)), quiet, rounded);
        hn::StoreU(hn::DemoteTo(dh, hn::BitCast(di, hn::ShiftRight<16>(kept))), dh, out + c);
      }
      for (; c < cols; ++c) out[c] = bf16_from_float(from[c] * f);
    } else if (to.dtype == DType::f16) {
      namespace convert = cpu::HWY_NAMESPACE;
      uint16_t* out = static_cast<uint16_t*>(to.data) + at;
      for (; c < whole; c += lanes)
        convert::store_u16(convert::f16_bits(hn::Mul(hn::LoadU(d, from + c), scale)), out + c);
      for (; c < cols; ++c) out[c] = f16_from_float(from[c] * f);
    } else {
      float* out = static_cast<float*>(to.data) + at;
      for (; c < whole; c += lanes) hn::StoreU(hn::Mul(hn::LoadU(d, from + c), scale), d, out + c);
      for (; c < cols; ++c) out[c] = from[c] * f;
    }
  }
}

// `from` [rows, stride] to `to` [cols, to_stride], in squares of 4: both are readable and writable
// to the next multiple of 4, and what lies past `rows` or `cols` is not meaningful.
HWY_INLINE void transpose_block(const float* from, size_t stride, size_t rows, size_t cols,
                                float* to, size_t to_stride) {
#if HWY_TARGET == HWY_SCALAR
  for (size_t c = 0; c < cols; ++c)
    for (size_t r = 0; r < rows; ++r) to[c * to_stride + r] = from[r * stride + c];
#else
  const hn::Full128<float> d;
  const hn::Full128<uint64_t> dp;
  for (size_t r = 0; r < rows; r += 4) {
    for (size_t c = 0; c < cols; c += 4) {
      const float* in = from + r * stride + c;
      const auto v0 = hn::LoadU(d, in), v1 = hn::LoadU(d, in + stride);
      const auto v2 = hn::LoadU(d, in + 2 * stride), v3 = hn::LoadU(d, in + 3 * stride);
      const auto low01 = hn::BitCast(dp, hn::InterleaveLower(d, v0, v1));
      const auto low23 = hn::BitCast(dp, hn::InterleaveLower(d, v2, v3));
      const auto high01 = hn::BitCast(dp, hn::InterleaveUpper(d, v0, v1));
      const auto high23 = hn::BitCast(dp, hn::InterleaveUpper(d, v2, v3));
      float* out = to + c * to_stride + r;
      hn::StoreU(hn::BitCast(d, hn::InterleaveLower(dp, low01, low23)), d, out);
      hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(dp, low01, low23)), d, out + to_stride);
      hn::StoreU(hn::BitCast(d, hn::InterleaveLower(dp, high01, high23)), d, out + 2 * to_stride);
      hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(dp, high01, high23)), d, out + 3 * to_stride);
    }
  }
#endif
}

}  // namespace coda::cpu::attention::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard of one instruction set
