// SPDX-License-Identifier: Apache-2.0
// Moves of a few elements between registers and memory, for epilogues, in PTX. Tests replace this
// file to run epilogues on a CPU.
#pragma once

#include "device/layout/shared_address.cuh"

namespace coda::device {

// Loads two neighbouring 16-bit elements: both in one access, only the first, or only the second,
// depending on which flag is not 0. Other elements read as zero and are not written. Predicated
// instead of branching, so that many accesses can be in flight.
__device__ __forceinline__ u32 load_half_pair(u64 address, u32 both, u32 first, u32 second) {
  u32 packed;
  asm volatile(
      "{\n"
      ".reg .pred both, first, second;\n"
      ".reg .b16 low, high;\n"
      ".reg .b32 apart;\n"
      "setp.ne.u32 both, %2, 0;\n"
      "setp.ne.u32 first, %3, 0;\n"
      "setp.ne.u32 second, %4, 0;\n"
      "mov.b32 %0, 0;\n"
      "mov.b16 low, 0;\n"
      "mov.b16 high, 0;\n"
      "@both ld.global.b32 %0, [%1];\n"
      "@first ld.global.b16 low, [%1];\n"
      "@second ld.global.b16 high, [%1+2];\n"
      "mov.b32 apart, {low, high};\n"
      "or.b32 %0, %0, apart;\n"
      "}\n"
      : "=&r"(packed)
      : "l"(address), "r"(both), "r"(first), "r"(second)
      : "memory");
  return packed;
}
// The same for 8-bit elements.
__device__ __forceinline__ u32 load_byte_pair(u64 address, u32 both, u32 first, u32 second) {
  u32 packed;
  asm volatile(
      "{\n"
      ".reg .pred both, first, second;\n"
      ".reg .b16 two, low, high;\n"
      "setp.ne.u32 both, %2, 0;\n"
      "setp.ne.u32 first, %3, 0;\n"
      "setp.ne.u32 second, %4, 0;\n"
      "mov.b16 two, 0;\n"
      "mov.b16 low, 0;\n"
      "mov.b16 high, 0;\n"
      "@both ld.global.b16 two, [%1];\n"
      "@first ld.global.b8 low, [%1];\n"
      "@second ld.global.b8 high, [%1+1];\n"
      "shl.b16 high, high, 8;\n"
      "or.b16 low, low, high;\n"
      "or.b16 low, low, two;\n"
      "cvt.u32.u16 %0, low;\n"
      "}\n"
      : "=r"(packed)
      : "l"(address), "r"(both), "r"(first), "r"(second)
      : "memory");
  return packed;
}
__device__ __forceinline__ void load_float_pair(float (&x)[2], u64 address, u32 both, u32 first,
                                                u32 second) {
  // Each load has its own registers: with shared ones it would wait for the previous load.
  asm volatile(
      "{\n"
      ".reg .pred both, first, second;\n"
      ".reg .b32 left, right, alone, last;\n"
      "setp.ne.u32 both, %3, 0;\n"
      "setp.ne.u32 first, %4, 0;\n"
      "setp.ne.u32 second, %5, 0;\n"
      "mov.b32 left, 0;\n"
      "mov.b32 right, 0;\n"
      "mov.b32 alone, 0;\n"
      "mov.b32 last, 0;\n"
      "@both ld.global.v2.b32 {left, right}, [%2];\n"
      "@first ld.global.b32 alone, [%2];\n"
      "@second ld.global.b32 last, [%2+4];\n"
      "or.b32 left, left, alone;\n"
      "or.b32 right, right, last;\n"
      "mov.b32 %0, left;\n"
      "mov.b32 %1, right;\n"
      "}\n"
      : "=&f"(x[0]), "=&f"(x[1])
      : "l"(address), "r"(both), "r"(first), "r"(second)
      : "memory");
}
__device__ __forceinline__ void store_float_pair(u64 address, u32 both, u32 first, u32 second,
                                                 const float (&x)[2]) {
  asm volatile(
      "{\n"
      ".reg .pred both, first, second;\n"
      "setp.ne.u32 both, %3, 0;\n"
      "setp.ne.u32 first, %4, 0;\n"
      "setp.ne.u32 second, %5, 0;\n"
      "@both st.global.v2.f32 [%2], {%0, %1};\n"
      "@first st.global.f32 [%2], %0;\n"
      "@second st.global.f32 [%2+4], %1;\n"
      "}\n" ::"f"(x[0]),
      "f"(x[1]), "l"(address), "r"(both), "r"(first), "r"(second)
      : "memory");
}
__device__ __forceinline__ void store_half_pair(u64 address, u32 both, u32 first, u32 second,
                                                u32 packed) {
  asm volatile(
      "{\n"
      ".reg .pred both, first, second;\n"
      ".reg .b16 low, high;\n"
      "setp.ne.u32 both, %2, 0;\n"
      "setp.ne.u32 first, %3, 0;\n"
      "setp.ne.u32 second, %4, 0;\n"
      "mov.b32 {low, high}, %0;\n"
      "@both st.global.b32 [%1], %0;\n"
      "@first st.global.b16 [%1], low;\n"
      "@second st.global.b16 [%1+2], high;\n"
      "}\n" ::"r"(packed),
      "l"(address), "r"(both), "r"(first), "r"(second)
      : "memory");
}

// Adds to fp32 numbers in memory with reduction instructions. Two elements must be aligned to 8
// bytes, four to 16.
__device__ __forceinline__ void add_float(u64 address, float x) {
  asm volatile("red.global.add.f32 [%0], %1;" ::"l"(address), "f"(x) : "memory");
}
__device__ __forceinline__ void add_two_floats(u64 address, const float (&x)[2]) {
  asm volatile("red.global.add.v2.f32 [%0], {%1, %2};" ::"l"(address), "f"(x[0]), "f"(x[1])
               : "memory");
}
__device__ __forceinline__ void add_four_floats(u64 address, const float (&x)[4]) {
  asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(address), "f"(x[0]), "f"(x[1]),
               "f"(x[2]), "f"(x[3])
               : "memory");
}

// One float of shared memory.
__device__ __forceinline__ void store_shared(SharedAddress address, float x) {
  asm volatile("st.shared.f32 [%0], %1;" ::"r"(address.byte), "f"(x) : "memory");
}
__device__ __forceinline__ void store_shared(SharedAddress address, const u32 (&words)[2]) {
  asm volatile("st.shared.v2.u32 [%0], {%1, %2};" ::"r"(address.byte), "r"(words[0]), "r"(words[1])
               : "memory");
}
__device__ __forceinline__ float load_shared(SharedAddress address) {
  float x;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(x) : "r"(address.byte) : "memory");
  return x;
}
__device__ __forceinline__ void load_shared(u32 (&words)[2], SharedAddress address) {
  asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];"
               : "=r"(words[0]), "=r"(words[1])
               : "r"(address.byte)
               : "memory");
}

// The full-width product of two numbers, opaque to the compiler, which would otherwise split later
// multiplications.
__device__ __forceinline__ u64 wide_product(u32 a, u32 b) {
  u64 product;
  asm("mul.wide.u32 %0, %1, %2;" : "=l"(product) : "r"(a), "r"(b));
  return product;
}

}  // namespace coda::device
