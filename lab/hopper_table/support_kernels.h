// SPDX-License-Identifier: Apache-2.0
// The kernels that judge: random operands, a naive fp32 product, and a comparison of one stored
// plane with what it should be. They share nothing with the code they check.
#pragma once

namespace coda::hopper_table {

// Element types are passed as a flag, so that one module serves both.
inline constexpr const char* kSupportSource = R"cuda(
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

__device__ float widen(u16 bits, int fp16) {
  float value;
  if (fp16) {
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  } else {
    value = __uint_as_float(static_cast<u32>(bits) << 16);
  }
  return value;
}

__device__ u16 narrow(float value, int fp16) {
  u16 bits;
  if (fp16) {
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  } else {
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  }
  return bits;
}

__device__ u64 mix(u64 x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

// Normal deviates; the columns from `columns` to `pitch` stay as they are.
extern "C" __global__ void fill_normal(u16* data, u64 rows, u64 columns, u64 pitch, u64 seed,
                                       int fp16) {
  const u64 count = rows * columns;
  const u64 step = static_cast<u64>(gridDim.x) * blockDim.x;
  for (u64 i = static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) {
    const u64 bits = mix(i ^ mix(seed));
    const float u = (static_cast<float>(static_cast<u32>(bits) >> 8) + 0.5f) * (1.0f / 16777216.0f);
    const float v = static_cast<float>(static_cast<u32>(bits >> 40)) * (1.0f / 16777216.0f);
    const float normal = sqrtf(-2.0f * logf(u)) * cosf(6.28318530718f * v);
    data[i / columns * pitch + i % columns] = narrow(normal, fp16);
  }
}

// out[m, n] = sum over k of a · b, with strides, so that one kernel serves every layout.
extern "C" __global__ void naive_gemm(const u16* a, const u16* b, float* out, u32 m, u32 n, u32 k,
                                      u64 a_row, u64 a_k, u64 b_column, u64 b_k, int fp16) {
  const u64 count = static_cast<u64>(m) * n;
  const u64 step = static_cast<u64>(gridDim.x) * blockDim.x;
  for (u64 i = static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) {
    const u64 row = i / n;
    const u64 column = i % n;
    double sum = 0;
    for (u32 j = 0; j < k; ++j) {
      sum += static_cast<double>(widen(a[row * a_row + j * a_k], fp16)) *
             static_cast<double>(widen(b[column * b_column + j * b_k], fp16));
    }
    out[i] = static_cast<float>(sum);
  }
}

struct Verdict {
  double error;      // sum of squared differences
  double magnitude;  // sum of squared references
  u64 wrong;         // elements off by more than one rounding
  u64 touched;       // elements outside the output that were written
  u64 checksum;      // of all bits, the same for every configuration
};

// `stored` has `pitch` columns and `extra` elements after its last row, all poisoned before.
extern "C" __global__ void compare(const u16* stored, const float* product, const u16* load0,
                                   const u16* load1, const u16* load2, int loads, int plane, u32 m,
                                   u32 n, u32 k, u64 pitch, u64 extra, int fp16, Verdict* verdict) {
  const u64 count = static_cast<u64>(m) * pitch + extra;
  const u64 step = static_cast<u64>(gridDim.x) * blockDim.x;
  const float slack = 2e-5f * sqrtf(static_cast<float>(k)) + 1e-6f;
  double error = 0, magnitude = 0;
  u64 wrong = 0, touched = 0, checksum = 0;
  for (u64 i = static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) {
    const u64 row = i / pitch;
    const u64 column = i % pitch;
    const u16 bits = stored[i];
    if (row >= m || column >= n) {
      // TMA stores whole 16-byte pieces of a row.
      touched += bits != 0xffff && !(row < m && column < (n + 7) / 8 * 8);
      continue;
    }
    checksum += mix((row * n + column) << 16 | bits);
    const u16* planes[3] = {load0, load1, load2};
    float expected = product[row * n + column];
    if (plane == 0) {
      for (int l = 0; l < loads; ++l) expected += widen(planes[l][i], fp16);
    } else {
      expected /= static_cast<float>(plane + 1);
      if (loads != 0) expected += widen(planes[plane % loads][i], fp16);
    }
    const float value = widen(bits, fp16);
    const float difference = value - expected;
    wrong += !(fabsf(difference) <= fabsf(expected) * (1.0f / 256) + slack);
    error += static_cast<double>(difference) * difference;
    magnitude += static_cast<double>(expected) * expected;
  }
  atomicAdd(&verdict->error, error);
  atomicAdd(&verdict->magnitude, magnitude);
  if (wrong != 0) atomicAdd(&verdict->wrong, wrong);
  if (touched != 0) atomicAdd(&verdict->touched, touched);
  atomicAdd(&verdict->checksum, checksum);
}
)cuda";

struct Verdict {
  double error = 0;
  double magnitude = 0;
  unsigned long long wrong = 0;
  unsigned long long touched = 0;
  unsigned long long checksum = 0;
};

}  // namespace coda::hopper_table
