// SPDX-License-Identifier: Apache-2.0
// device/values/math.cuh on a CPU, with the C library's functions.
#pragma once

#include <cmath>
#include <limits>

#include "device/types.cuh"

namespace coda::device {

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();
inline constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

inline constexpr float kLog2E = 1.44269504f;
inline float power_of_two(float x) { return std::exp2(x); }

inline float maximum(float a, float b) { return a != a || b != b ? kNaN : a > b ? a : b; }
inline float minimum(float a, float b) { return a != a || b != b ? kNaN : a < b ? a : b; }
inline float equal(float a, float b) { return a == b ? 1.0f : 0.0f; }
inline float less(float a, float b) { return a < b ? 1.0f : 0.0f; }
inline float less_equal(float a, float b) { return a <= b ? 1.0f : 0.0f; }
inline float not_equal(float a, float b) { return a != b ? 1.0f : 0.0f; }
inline float select(float condition, float a, float b) { return condition != 0.0f ? a : b; }
inline float negative(float x) { return -x; }
inline float absolute(float x) { return fabsf(x); }
inline float relu(float x) { return maximum(0.0f, x); }
inline float exponential(float x) { return expf(x); }
inline float logarithm(float x) { return logf(x); }
inline float reciprocal(float x) { return 1.0f / x; }
inline float rsqrt(float x) { return 1.0f / sqrtf(x); }
inline float square_root(float x) { return sqrtf(x); }
inline float quotient(float a, float b) { return a / b; }
inline float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }
inline float silu(float x) { return x * sigmoid(x); }
inline float hyperbolic_tangent(float x) { return tanhf(x); }
inline float error_function(float x) { return erff(x); }
inline float error_function_plus_one(float x) { return erfcf(-x); }
inline float gelu(float x) { return 0.5f * x * erfcf(x * -0.70710678f); }
inline float gelu_tanh(float x) {
  return 0.5f * x * (1.0f + tanhf(0.79788456f * (x + 0.044715f * x * x * x)));
}

}  // namespace coda::device
