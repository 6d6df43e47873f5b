// SPDX-License-Identifier: Apache-2.0
// Conversions between vectors of float and 16-bit storage, to nearest with ties to even (Highway
// 1.0.3 truncates): as in coda/float16.h, bit for bit. Included once per instruction set, hence the
// toggled guard.
#if defined(CODA_BASE_VECTOR_CONVERT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CODA_BASE_VECTOR_CONVERT_INL_H_
#undef CODA_BASE_VECTOR_CONVERT_INL_H_
#else
#define CODA_BASE_VECTOR_CONVERT_INL_H_
#endif

#include <cstdint>

#include "base/vector_math-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace coda::cpu::HWY_NAMESPACE {

using VecU = hn::Vec<U32>;
using U16Half = hn::Rebind<uint16_t, F32>;  // as many lanes of 16 bits as a vector of float has

HWY_INLINE VecU bits_of(uint32_t x) { return hn::Set(U32(), x); }

HWY_INLINE VecU choose(hn::Mask<U32> condition, VecU a, VecU b) {
  return hn::IfThenElse(condition, a, b);
}

// The nearest bf16's bits in the high half of each lane; what is in the low half means nothing.
HWY_INLINE VecU rounded_to_bf16(Vec x) {
  const VecU bits = hn::BitCast(U32(), x);
  const VecU odd = hn::And(hn::ShiftRight<16>(bits), bits_of(1));
  const VecU rounded = hn::Add(hn::Add(bits, bits_of(0x7fff)), odd);
  const auto nan = hn::RebindMask(U32(), hn::IsNaN(x));
  return choose(nan, hn::Or(bits, bits_of(0x400000)), rounded);
}

// The bf16 bits of each lane, in its low half.
HWY_INLINE VecU bf16_bits(Vec x) { return hn::ShiftRight<16>(rounded_to_bf16(x)); }

// Each lane as bf16 holds it.
HWY_INLINE Vec round_to_bf16(Vec x) {
  return hn::BitCast(F32(), hn::And(rounded_to_bf16(x), bits_of(0xffff0000)));
}

HWY_INLINE Vec float_of_bf16_bits(VecU bits) { return hn::BitCast(F32(), hn::ShiftLeft<16>(bits)); }

// The f16 bits of each lane, in its low half. Subnormals come from an addition that shifts the
// mantissa into place and rounds it; overflow from the carry into the exponent.
HWY_INLINE VecU f16_bits(Vec x) {
  const VecU bits = hn::BitCast(U32(), x);
  const VecU sign = hn::And(hn::ShiftRight<16>(bits), bits_of(0x8000));
  const VecU magnitude = hn::And(bits, bits_of(0x7fffffff));
  const VecU odd = hn::And(hn::ShiftRight<13>(magnitude), bits_of(1));
  const VecU normal = hn::ShiftRight<13>(
      hn::Sub(hn::Add(magnitude, hn::Add(odd, bits_of(0xfff))), bits_of(0x38000000)));
  const Vec shifted = hn::Add(hn::BitCast(F32(), magnitude), set(0.5f));
  const VecU subnormal = hn::Sub(hn::BitCast(U32(), shifted), bits_of(0x3f000000));
  const Vec m = hn::BitCast(F32(), magnitude);
  VecU result = choose(hn::RebindMask(U32(), hn::Lt(m, set(0x1p-14f))), subnormal, normal);
  result = choose(hn::RebindMask(U32(), hn::Ge(m, set(65536.0f))), bits_of(0x7c00), result);
  const VecU payload = hn::And(hn::ShiftRight<13>(magnitude), bits_of(0x3ff));
  result = choose(hn::RebindMask(U32(), hn::IsNaN(x)), hn::Or(payload, bits_of(0x7e00)), result);
  return hn::Or(sign, result);
}

HWY_INLINE Vec float_of_f16_bits(VecU half) {
  const VecU sign = hn::ShiftLeft<16>(hn::And(half, bits_of(0x8000)));
  const VecU magnitude = hn::ShiftLeft<13>(hn::And(half, bits_of(0x7fff)));
  const VecU normal = hn::Add(magnitude, bits_of(112u << 23));
  // Exponent 31: infinity or NaN, made quiet.
  const auto special = hn::Gt(hn::BitCast(I32(), magnitude), hn::Set(I32(), 0x0f7fffff));
  const VecU mantissa = hn::And(magnitude, bits_of(0x007fffff));
  const auto is_zero = hn::Eq(hn::BitCast(I32(), mantissa), hn::Zero(I32()));
  const VecU quiet = hn::BitCast(U32(), hn::IfThenZeroElse(is_zero, hn::Set(I32(), 0x00400000)));
  const VecU infinite = hn::Or(hn::Or(mantissa, quiet), bits_of(0x7f800000));
  // Exponent 0: mantissa * 2^-24, exact.
  const auto tiny = hn::Lt(hn::BitCast(I32(), magnitude), hn::Set(I32(), 0x00800000));
  const Vec integer = hn::ConvertTo(F32(), hn::BitCast(I32(), hn::ShiftRight<13>(magnitude)));
  const VecU subnormal = hn::BitCast(U32(), hn::Mul(integer, set(0x1p-24f)));
  VecU result = choose(hn::RebindMask(U32(), special), infinite, normal);
  result = choose(hn::RebindMask(U32(), tiny), subnormal, result);
  return hn::BitCast(F32(), hn::Or(sign, result));
}

// One vector's worth of 16-bit values, from and to memory.
HWY_INLINE VecU load_u16(const uint16_t* p) {
  return hn::PromoteTo(U32(), hn::LoadU(U16Half(), p));
}

HWY_INLINE void store_u16(VecU bits, uint16_t* p) {
  hn::StoreU(hn::DemoteTo(U16Half(), hn::BitCast(I32(), bits)), U16Half(), p);
}

}  // namespace coda::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggled guard
