// SPDX-License-Identifier: Apache-2.0
// Elementary functions on Highway vectors of float, a few ulp from the exact value, with the right
// results at 0, the infinities and NaN. Each lane depends on its own input only. Included once per
// instruction set (see Highway's foreach_target), hence the toggled guard.
#if defined(CODA_BASE_VECTOR_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CODA_BASE_VECTOR_MATH_INL_H_
#undef CODA_BASE_VECTOR_MATH_INL_H_
#else
#define CODA_BASE_VECTOR_MATH_INL_H_
#endif

#include <cstdint>
#include <limits>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace coda::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::ScalableTag<float>;
using I32 = hn::ScalableTag<int32_t>;
using U32 = hn::ScalableTag<uint32_t>;
using Vec = hn::Vec<F32>;

HWY_INLINE Vec set(float x) { return hn::Set(F32(), x); }

// value where x is not NaN, else x.
HWY_INLINE Vec keep_nan(Vec x, Vec value) { return hn::IfThenElse(hn::Eq(x, x), value, x); }

// 2^n for integers n in [-126, 127].
HWY_INLINE Vec power_of_two(hn::Vec<I32> n) {
  return hn::BitCast(F32(), hn::ShiftLeft<23>(hn::Add(n, hn::Set(I32(), 127))));
}

// Cody-Waite reduction to |r| <= ln2 / 2 and a polynomial; the power of two is applied in two
// halves, so that subnormal results and results near the largest float are right.
HWY_INLINE Vec exp(Vec x) {
  const Vec clamped = hn::Min(hn::Max(x, set(-104.0f)), set(89.0f));
  const Vec n = hn::Round(hn::Mul(clamped, set(1.44269504088896341f)));
  Vec r = hn::NegMulAdd(n, set(0.693359375f), clamped);
  r = hn::NegMulAdd(n, set(-2.12194440e-4f), r);
  Vec p = set(1.9875691500e-4f);
  p = hn::MulAdd(p, r, set(1.3981999507e-3f));
  p = hn::MulAdd(p, r, set(8.3334519073e-3f));
  p = hn::MulAdd(p, r, set(4.1665795894e-2f));
  p = hn::MulAdd(p, r, set(1.6666665459e-1f));
  p = hn::MulAdd(p, r, set(5.0000001201e-1f));
  p = hn::Add(hn::MulAdd(hn::Mul(r, r), p, r), set(1.0f));
  const auto k = hn::ConvertTo(I32(), n);
  const auto half = hn::ShiftRight<1>(k);
  const Vec result = hn::Mul(hn::Mul(p, power_of_two(half)), power_of_two(hn::Sub(k, half)));
  return keep_nan(x, result);
}

// exp for x <= 0, as softmax and sigmoid need it: what would be subnormal is 0 and the power of two
// is applied at once. Of NaN it is any number, for those who look after it themselves.
HWY_INLINE Vec exp_of_negative_number(Vec x) {
  const Vec clamped = hn::Max(x, set(-87.33654f));
  const Vec n = hn::Round(hn::Mul(clamped, set(1.44269504088896341f)));
  Vec r = hn::NegMulAdd(n, set(0.693359375f), clamped);
  r = hn::NegMulAdd(n, set(-2.12194440e-4f), r);
  Vec p = set(1.9875691500e-4f);
  p = hn::MulAdd(p, r, set(1.3981999507e-3f));
  p = hn::MulAdd(p, r, set(8.3334519073e-3f));
  p = hn::MulAdd(p, r, set(4.1665795894e-2f));
  p = hn::MulAdd(p, r, set(1.6666665459e-1f));
  p = hn::MulAdd(p, r, set(5.0000001201e-1f));
  p = hn::Add(hn::MulAdd(hn::Mul(r, r), p, r), set(1.0f));
  const auto bits = hn::Add(hn::BitCast(I32(), p), hn::ShiftLeft<23>(hn::ConvertTo(I32(), n)));
  return hn::IfThenZeroElse(hn::Lt(x, set(-87.33654f)), hn::BitCast(F32(), bits));
}

HWY_INLINE Vec exp_of_negative(Vec x) { return keep_nan(x, exp_of_negative_number(x)); }

// The mantissa is brought to [sqrt(1/2), sqrt(2)) and log(1 + f) is a polynomial in f.
HWY_INLINE Vec log(Vec x) {
  const auto subnormal = hn::Lt(x, set(std::numeric_limits<float>::min()));
  const Vec scaled = hn::IfThenElse(subnormal, hn::Mul(x, set(8388608.0f)), x);
  const auto bits = hn::BitCast(I32(), scaled);
  // 0x3f3504f3 is sqrt(1/2): the exponent field of (bits - it) counts from there.
  const auto e = hn::ShiftRight<23>(hn::Sub(bits, hn::Set(I32(), 0x3f3504f3)));
  const Vec m = hn::BitCast(F32(), hn::Sub(bits, hn::ShiftLeft<23>(e)));
  const Vec exponent = hn::Sub(hn::ConvertTo(F32(), e), hn::IfThenElseZero(subnormal, set(23.0f)));
  const Vec f = hn::Sub(m, set(1.0f));
  const Vec f2 = hn::Mul(f, f);
  Vec p = set(7.0376836292e-2f);
  p = hn::MulAdd(p, f, set(-1.1514610310e-1f));
  p = hn::MulAdd(p, f, set(1.1676998740e-1f));
  p = hn::MulAdd(p, f, set(-1.2420140846e-1f));
  p = hn::MulAdd(p, f, set(1.4249322787e-1f));
  p = hn::MulAdd(p, f, set(-1.6668057665e-1f));
  p = hn::MulAdd(p, f, set(2.0000714765e-1f));
  p = hn::MulAdd(p, f, set(-2.4999993993e-1f));
  p = hn::MulAdd(p, f, set(3.3333331174e-1f));
  p = hn::Mul(hn::Mul(p, f), f2);
  p = hn::MulAdd(exponent, set(-2.12194440e-4f), p);
  p = hn::NegMulAdd(f2, set(0.5f), p);
  Vec result = hn::MulAdd(exponent, set(0.693359375f), hn::Add(f, p));
  const Vec infinity = set(std::numeric_limits<float>::infinity());
  result = hn::IfThenElse(hn::Eq(x, infinity), infinity, result);
  result = hn::IfThenElse(hn::Eq(x, set(0.0f)), hn::Neg(infinity), result);
  result =
      hn::IfThenElse(hn::Lt(x, set(0.0f)), set(std::numeric_limits<float>::quiet_NaN()), result);
  return keep_nan(x, result);
}

HWY_INLINE Vec sigmoid(Vec x) {
  const Vec e = exp_of_negative_number(hn::Neg(hn::Abs(x)));
  const Vec s = hn::Div(hn::IfThenElse(hn::Lt(x, set(0.0f)), e, set(1.0f)), hn::Add(set(1.0f), e));
  return keep_nan(x, s);
}

HWY_INLINE Vec tanh(Vec x) {
  const Vec a = hn::Abs(x);
  // Small: an odd polynomial. Otherwise (1 - e) / (1 + e) with e = exp(-2|x|), which has no
  // cancellation there.
  const Vec s = hn::Mul(x, x);
  Vec p = set(-5.70498872745e-3f);
  p = hn::MulAdd(p, s, set(2.06390887954e-2f));
  p = hn::MulAdd(p, s, set(-5.37397155531e-2f));
  p = hn::MulAdd(p, s, set(1.33314422036e-1f));
  p = hn::MulAdd(p, s, set(-3.33332819422e-1f));
  const Vec small = hn::MulAdd(hn::Mul(p, s), x, x);
  const Vec e = exp_of_negative_number(hn::Mul(a, set(-2.0f)));
  const Vec large = hn::CopySign(hn::Div(hn::Sub(set(1.0f), e), hn::Add(set(1.0f), e)), x);
  return keep_nan(x, hn::IfThenElse(hn::Lt(a, set(0.625f)), small, large));
}

// Below 0.9277 an odd polynomial; above, 1 - exp(a polynomial that approximates log(erfc)).
HWY_INLINE Vec erf(Vec x) {
  const Vec t = hn::Abs(x);
  const Vec s = hn::Mul(x, x);
  Vec near = set(-5.96761703e-4f);
  near = hn::MulAdd(near, s, set(4.99119423e-3f));
  near = hn::MulAdd(near, s, set(-2.67681349e-2f));
  near = hn::MulAdd(near, s, set(1.12819925e-1f));
  near = hn::MulAdd(near, s, set(-3.76125336e-1f));
  near = hn::MulAdd(near, s, set(1.28379166e-1f));
  near = hn::MulAdd(near, x, x);
  const Vec u = hn::Min(t, set(4.0f));  // erf is 1 in float from 3.92 on
  const Vec u2 = hn::Mul(u, u);
  Vec far = hn::MulAdd(set(-1.72853470e-5f), u, set(3.83197126e-4f));
  const Vec odd = hn::MulAdd(set(-3.88396438e-3f), u, set(2.42546219e-2f));
  far = hn::MulAdd(far, u2, odd);
  far = hn::MulAdd(far, u, set(-1.06777877e-1f));
  far = hn::MulAdd(far, u, set(-6.34846687e-1f));
  far = hn::MulAdd(far, u, set(-1.28717512e-1f));
  far = hn::MulSub(far, u, u);
  far = hn::CopySign(hn::Sub(set(1.0f), exp_of_negative_number(far)), x);
  return keep_nan(x, hn::IfThenElse(hn::Gt(t, set(0.927734375f)), far, near));
}

}  // namespace coda::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggled guard
