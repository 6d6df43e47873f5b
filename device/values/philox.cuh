// SPDX-License-Identifier: Apache-2.0
// Counter-based random numbers with the same bits as src/base/philox.h, and rounding by them.
#pragma once

#include "device/values/math.cuh"

namespace coda::device {

// The two words of a block.
struct RandomWords {
  u32 value[2];
};

__device__ __forceinline__ RandomWords philox(u32 row, u32 column_pair, u32 key) {
  RandomWords words = {{row, column_pair}};
#pragma unroll
  for (u32 round = 0; round < 10; ++round) {
    const u64 product = static_cast<u64>(0xD256D193u) * words.value[0];
    words = {{static_cast<u32>(product >> 32) ^ key ^ words.value[1], static_cast<u32>(product)}};
    key += 0x9E3779B9u;
  }
  return words;
}

__device__ __forceinline__ bool is_counter(float x) { return x >= 0.0f && x < 4294967296.0f; }
__device__ __forceinline__ u32 counter_of(float x) {
  return static_cast<u32>(is_counter(x) ? x : 0.0f);
}

__device__ __forceinline__ float random_of(u32 word, bool is_inside) {
  return is_inside ? static_cast<float>(word >> 8) * 5.9604644775390625e-8f : kInfinity - kInfinity;
}

__device__ __forceinline__ float random_number(float seed, float row, float column) {
  const u32 at = counter_of(column);
  const RandomWords words = philox(counter_of(row), at / 2, counter_of(seed));
  return random_of(at % 2 == 0 ? words.value[0] : words.value[1],
                   is_counter(seed) && is_counter(row) && is_counter(column));
}

// Rounds to one of the two bf16 numbers around x by the first 16 bits of u: see
// src/base/stochastic_bf16.h.
__device__ __forceinline__ float stochastic_bf16(float x, float u) {
  const u32 bits = __builtin_bit_cast(u32, x);
  const u32 noise = static_cast<u32>(u > 0.0f ? fminf(u * 65536.0f, 65535.0f) : 0.0f);
  const bool is_finite = (bits & 0x7f800000u) != 0x7f800000u;
  return is_finite ? __builtin_bit_cast(float, (bits + noise) & 0xffff0000u) : x;
}

}  // namespace coda::device
