// SPDX-License-Identifier: Apache-2.0
// ldmatrix and stmatrix: a warp moves four 8x8 matrices of 16-bit elements between shared memory
// and fragments in the layout of wgmma's accumulators. Also the conversions between fp32 and packed
// elements.
#pragma once

#include "device/config.cuh"
#include "device/layout/shared_address.cuh"

namespace coda::device {

__device__ __forceinline__ void load_matrices(u32 (&fragment)[4], SharedAddress address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared::cta.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(fragment[0]), "=r"(fragment[1]), "=r"(fragment[2]), "=r"(fragment[3])
               : "r"(address.byte)
               : "memory");
}

__device__ __forceinline__ void store_matrices(SharedAddress address, const u32 (&fragment)[4]) {
  asm volatile(
      "stmatrix.sync.aligned.m8n8.x4.shared::cta.b16 [%0], {%1, %2, %3, %4};" ::"r"(address.byte),
      "r"(fragment[0]), "r"(fragment[1]), "r"(fragment[2]), "r"(fragment[3])
      : "memory");
}

// Packs two floats, rounded to nearest even; `low` is the element of the lower address.
template <Element kElement>
__device__ __forceinline__ u32 pack(float low, float high) {
  u32 packed;
  if constexpr (kElement == Element::bf16) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  }
  return packed;
}

template <Element kElement>
__device__ __forceinline__ void unpack(u32 packed, float& low, float& high) {
  if constexpr (kElement == Element::bf16) {
    low = __uint_as_float(packed << 16);
    high = __uint_as_float(packed & 0xffff0000u);
  } else {
    asm("{\n"
        ".reg .f16 low, high;\n"
        "mov.b32 {low, high}, %2;\n"
        "cvt.f32.f16 %0, low;\n"
        "cvt.f32.f16 %1, high;\n"
        "}\n"
        : "=f"(low), "=f"(high)
        : "r"(packed));
  }
}

// Multiplies two elements each, with one rounding to nearest even; subnormals are kept. (Going
// through fp32 would round the smallest bf16 numbers, below 2^-126, twice.) mul.bf16x2 exists only
// since compute capability 9.0. Adding -0, as written here, changes no product, and the assembler
// makes the same instruction of both.
template <Element kElement>
__device__ __forceinline__ u32 multiply_packed(u32 a, u32 b) {
  u32 product;
  if constexpr (kElement == Element::bf16) {
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(product) : "r"(a), "r"(b), "r"(0x80008000u));
  } else {
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
  }
  return product;
}

// The maximum of two elements each; NaN if either is NaN.
template <Element kElement>
__device__ __forceinline__ u32 maximum_packed(u32 a, u32 b) {
  u32 largest;
  if constexpr (kElement == Element::bf16) {
    asm("max.NaN.bf16x2 %0, %1, %2;" : "=r"(largest) : "r"(a), "r"(b));
  } else {
    asm("max.NaN.f16x2 %0, %1, %2;" : "=r"(largest) : "r"(a), "r"(b));
  }
  return largest;
}

}  // namespace coda::device
