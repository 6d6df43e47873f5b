// SPDX-License-Identifier: Apache-2.0
// Elementwise functions of a float in a few instructions each. They use special-function units
// where these are accurate to the last bits of fp32, so that later rounding to 16 bits is correct.
// The names are those of src/gpu/codegen/expressions.cc.
// Invariant: NaN in gives NaN out (also for maximum and minimum), and sigmoid and silu never
// overflow.
#pragma once

#include "device/types.cuh"

namespace coda::device {

inline constexpr float kInfinity = __builtin_bit_cast(float, 0x7f800000u);
inline constexpr float kLog2E = 1.44269504f;

__device__ __forceinline__ float maximum(float a, float b) {
  float result;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
}
__device__ __forceinline__ float minimum(float a, float b) {
  float result;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
}
__device__ __forceinline__ float equal(float a, float b) { return a == b ? 1.0f : 0.0f; }
__device__ __forceinline__ float less(float a, float b) { return a < b ? 1.0f : 0.0f; }
__device__ __forceinline__ float less_equal(float a, float b) { return a <= b ? 1.0f : 0.0f; }
__device__ __forceinline__ float not_equal(float a, float b) { return a != b ? 1.0f : 0.0f; }
__device__ __forceinline__ float select(float condition, float a, float b) {
  return condition != 0.0f ? a : b;
}
__device__ __forceinline__ float negative(float x) { return -x; }
__device__ __forceinline__ float absolute(float x) { return fabsf(x); }
__device__ __forceinline__ float relu(float x) { return maximum(0.0f, x); }

// 2 to the power of x.
__device__ __forceinline__ float power_of_two(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}
__device__ __forceinline__ float exponential(float x) { return power_of_two(x * kLog2E); }
// lg2.approx is too inaccurate near 1, where a logarithm is small.
__device__ __forceinline__ float logarithm(float x) { return logf(x); }

__device__ __forceinline__ float reciprocal(float x) {
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}
__device__ __forceinline__ float rsqrt(float x) {
  float result;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}
__device__ __forceinline__ float square_root(float x) {
  float result;
  asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}
// Accurate to two ulp over the whole range.
__device__ __forceinline__ float quotient(float a, float b) {
  float result;
  asm("div.full.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
}

__device__ __forceinline__ float sigmoid(float x) {
  return reciprocal(1.0f + power_of_two(x * -kLog2E));
}
__device__ __forceinline__ float silu(float x) { return x * sigmoid(x); }

// tanh.approx has errors of up to 5e-4, too large for a bf16 gradient. Near zero 1 - 2 / (1 + e^2x)
// cancels, so a series is used there.
__device__ __forceinline__ float hyperbolic_tangent(float x) {
  const float far = 1.0f - 2.0f * reciprocal(1.0f + power_of_two(x * (2.0f * kLog2E)));
  const float square = x * x;
  float series = fmaf(square, 1.57296831e-2f, -5.23039624e-2f);
  series = fmaf(series, square, 1.33152977e-1f);
  series = fmaf(series, square, -3.33327681e-1f);
  const float near = fmaf(series * square, x, x);
  return fabsf(x) < 0.55f ? near : far;
}

__device__ __forceinline__ float error_function(float x) { return erff(x); }
// exp(a a / 2) Phi(-a) for a of at least 0 and t = 1 / (1 + 0.27 a): t p(t), with p of degree 8,
// fitted for a from 0 to 14.2 (where Phi underflows) to a relative error of 2.4e-8.
__device__ __forceinline__ float scaled_tail(float t) {
  float p = fmaf(0.0289351363f, t, -0.126355246f);
  p = fmaf(p, t, 0.169506028f);
  p = fmaf(p, t, -0.0688770413f);
  p = fmaf(p, t, 0.107584648f);
  p = fmaf(p, t, 0.0721573383f);
  p = fmaf(p, t, 0.101781577f);
  p = fmaf(p, t, 0.107547179f);
  p = fmaf(p, t, 0.10772039f);
  return p * t;
}
// 1 + erf(x) = 2 Phi(sqrt(2) x), which does not cancel. It takes half of erff's instructions, and
// shares the exponential with erf's derivative.
__device__ __forceinline__ float error_function_plus_one(float x) {
  const float t = reciprocal(fmaf(0.381837662f, fabsf(x), 1.0f));
  const float tail = scaled_tail(t) * (2.0f * exponential(x * x * -1.0f));
  return x < 0.0f ? tail : 2.0f - tail;
}
// x Phi(x) = max(x, 0) - a Phi(-a) with a = abs(x), which does not cancel. It takes a third of
// erfcf's instructions. Phi(-a) is 0 in fp32 for a from 20 on, so a is limited to 20: an infinite a
// would give infinity times 0.
__device__ __forceinline__ float gelu(float x) {
  const float a = fminf(fabsf(x), 20.0f);
  const float tail = scaled_tail(reciprocal(fmaf(0.27f, a, 1.0f)));
  return fmaf(-a, tail * power_of_two(a * a * (-0.5f * kLog2E)), maximum(x, 0.0f));
}
// 0.5 (1 + tanh(u)) equals sigmoid(2 u), which does not cancel.
__device__ __forceinline__ float gelu_tanh(float x) {
  return x * sigmoid(1.59576912f * fmaf(0.044715f * x * x, x, x));
}

}  // namespace coda::device
