// SPDX-License-Identifier: Apache-2.0
// Loads and stores of a single element of any type, for code that does not limit bandwidth.
// Invariant: arithmetic is fp32; a value is rounded only when it is stored, to nearest even.
#pragma once

#include "device/types.cuh"

namespace coda::device {

// Conversions of 8-bit floats; they round to nearest and saturate as coda/float8.h and coda/dtype.h
// say. A GPU converts pairs, through fp16, which represents all numbers of both types. The first of
// two codes is in the low byte.
template <Element kStored>
__device__ __forceinline__ void from_two_eight_bits(u16 bits, float& first, float& second) {
  if constexpr (kStored == Element::u8) {
    first = static_cast<float>(bits & 0xff);
    second = static_cast<float>(bits >> 8);
  } else {
    u32 halves;
    if constexpr (kStored == Element::e4m3) {
      asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(bits));
    } else {
      asm("cvt.rn.f16x2.e5m2x2 %0, %1;" : "=r"(halves) : "h"(bits));
    }
    asm("cvt.f32.f16 %0, %1;" : "=f"(first) : "h"(static_cast<u16>(halves)));
    asm("cvt.f32.f16 %0, %1;" : "=f"(second) : "h"(static_cast<u16>(halves >> 16)));
  }
}
template <Element kStored>
__device__ __forceinline__ float from_eight_bits(u8 bits) {
  float value;
  float none;
  from_two_eight_bits<kStored>(bits, value, none);
  return value;
}
template <Element kStored>
__device__ __forceinline__ u16 two_eight_bits(float first, float second) {
  if constexpr (kStored == Element::u8) {
    u32 low;
    u32 high;
    asm("cvt.rni.u8.f32 %0, %1;" : "=r"(low) : "f"(first));
    asm("cvt.rni.u8.f32 %0, %1;" : "=r"(high) : "f"(second));
    return static_cast<u16>(low | high << 8);
  }
  u16 bits;
  if constexpr (kStored == Element::e4m3) {
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(bits) : "f"(second), "f"(first));
  } else {
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(bits) : "f"(second), "f"(first));
  }
  return bits;
}
template <Element kStored>
__device__ __forceinline__ u8 to_eight_bits(float value) {
  return static_cast<u8>(two_eight_bits<kStored>(value, 0.0f));
}

template <Element kStored>
__device__ __forceinline__ float load_element(u64 tensor, u64 index) {
  if constexpr (kStored == Element::f32) {
    return reinterpret_cast<const float*>(tensor)[index];
  } else if constexpr (kStored == Element::f64) {
    return static_cast<float>(reinterpret_cast<const double*>(tensor)[index]);
  } else if constexpr (kStored == Element::i32) {
    return static_cast<float>(reinterpret_cast<const int*>(tensor)[index]);
  } else if constexpr (bytes_of(kStored) == 1) {
    return from_eight_bits<kStored>(reinterpret_cast<const u8*>(tensor)[index]);
  } else {
    const u16 bits = reinterpret_cast<const u16*>(tensor)[index];
    float value;
    if constexpr (kStored == Element::bf16) {
      value = __uint_as_float(static_cast<u32>(bits) << 16);
    } else {
      asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    }
    return value;
  }
}

template <Element kStored>
__device__ __forceinline__ void store_element(u64 tensor, u64 index, float value) {
  if constexpr (kStored == Element::f32) {
    reinterpret_cast<float*>(tensor)[index] = value;
  } else if constexpr (kStored == Element::f64) {
    reinterpret_cast<double*>(tensor)[index] = value;
  } else if constexpr (bytes_of(kStored) == 1) {
    reinterpret_cast<u8*>(tensor)[index] = to_eight_bits<kStored>(value);
  } else {
    static_assert(kStored != Element::i32, "values are not stored as integers");
    u16 bits;
    if constexpr (kStored == Element::bf16) {
      asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    } else {
      asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    }
    reinterpret_cast<u16*>(tensor)[index] = bits;
  }
}

}  // namespace coda::device
