// SPDX-License-Identifier: Apache-2.0
// The functions of math.cuh in their most accurate versions. Finalizers, whose few values scale
// whole rows and columns, are emitted inside this namespace, where these functions hide the fast
// ones.
#pragma once

#include "device/values/math.cuh"

namespace coda::device::precise {

__device__ __forceinline__ float exponential(float x) { return expf(x); }
__device__ __forceinline__ float logarithm(float x) { return logf(x); }
__device__ __forceinline__ float reciprocal(float x) { return 1.0f / x; }
__device__ __forceinline__ float square_root(float x) { return sqrtf(x); }
__device__ __forceinline__ float rsqrt(float x) { return 1.0f / sqrtf(x); }
__device__ __forceinline__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }
__device__ __forceinline__ float silu(float x) { return x * sigmoid(x); }
__device__ __forceinline__ float hyperbolic_tangent(float x) { return tanhf(x); }
__device__ __forceinline__ float error_function_plus_one(float x) { return erfcf(-x); }
__device__ __forceinline__ float gelu(float x) { return 0.5f * x * erfcf(x * -0.707106781f); }
__device__ __forceinline__ float gelu_tanh(float x) {
  return x * sigmoid(1.59576912f * fmaf(0.044715f * x * x, x, x));
}

}  // namespace coda::device::precise
