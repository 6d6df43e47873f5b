// SPDX-License-Identifier: Apache-2.0
// Accesses of 16 bytes of global memory, and conversion of stored words to floats. Tests replace
// this file to run kernels on a CPU.
#pragma once

#include "device/element.cuh"

namespace coda::device {

enum class Access {
  streamed,  // read once, by nobody else
  cached,    // read again soon, by this thread's neighbours: tables, vectors
  in_place,  // the kernel also writes it
};

template <Access kAccess>
__device__ __forceinline__ void load_piece(u32 (&word)[4], u64 address) {
  if constexpr (kAccess == Access::streamed) {
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(word[0]), "=r"(word[1]), "=r"(word[2]), "=r"(word[3])
                 : "l"(address));
  } else if constexpr (kAccess == Access::cached) {
    asm volatile("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(word[0]), "=r"(word[1]), "=r"(word[2]), "=r"(word[3])
                 : "l"(address));
  } else {
    asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(word[0]), "=r"(word[1]), "=r"(word[2]), "=r"(word[3])
                 : "l"(address)
                 : "memory");
  }
}

__device__ __forceinline__ void store_piece(u64 address, const u32 (&word)[4]) {
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(address), "r"(word[0]),
               "r"(word[1]), "r"(word[2]), "r"(word[3])
               : "memory");
}

// Loads eight bytes, aligned to eight.
template <Access kAccess>
__device__ __forceinline__ void load_half_piece(u32 (&word)[2], u64 address) {
  if constexpr (kAccess == Access::streamed) {
    asm volatile("ld.global.nc.L1::no_allocate.v2.u32 {%0, %1}, [%2];"
                 : "=r"(word[0]), "=r"(word[1])
                 : "l"(address));
  } else if constexpr (kAccess == Access::cached) {
    asm volatile("ld.global.nc.v2.u32 {%0, %1}, [%2];"
                 : "=r"(word[0]), "=r"(word[1])
                 : "l"(address));
  } else {
    asm volatile("ld.global.v2.u32 {%0, %1}, [%2];"
                 : "=r"(word[0]), "=r"(word[1])
                 : "l"(address)
                 : "memory");
  }
}
__device__ __forceinline__ void store_half_piece(u64 address, const u32 (&word)[2]) {
  asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(address), "r"(word[0]), "r"(word[1])
               : "memory");
}

template <Element kStored>
__device__ __forceinline__ float word_value(u32 word) {
  return kStored == Element::f32 ? __uint_as_float(word)
                                 : static_cast<float>(static_cast<int>(word));
}
__device__ __forceinline__ u32 float_word(float value) { return __float_as_uint(value); }

__device__ __forceinline__ float double_value(u32 low, u32 high) {
  return static_cast<float>(
      __longlong_as_double(static_cast<long long>(static_cast<u64>(high) << 32 | low)));
}
__device__ __forceinline__ void double_words(float value, u32& low, u32& high) {
  const u64 bits = static_cast<u64>(__double_as_longlong(static_cast<double>(value)));
  low = static_cast<u32>(bits);
  high = static_cast<u32>(bits >> 32);
}

// Atomic maximum of a word, without waiting; the order does not affect the result.
__device__ __forceinline__ void raise_word(u64 address, u32 bits) {
  asm volatile("red.global.max.u32 [%0], %1;" ::"l"(address), "r"(bits) : "memory");
}

// The word's current value; it may be slightly outdated.
__device__ __forceinline__ u32 raised_word(u64 address) {
  u32 bits;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(bits) : "l"(address));
  return bits;
}

__device__ __forceinline__ u32 load_index(u64 tensor, u64 index) {
  return reinterpret_cast<const u32*>(tensor)[index];
}

}  // namespace coda::device
