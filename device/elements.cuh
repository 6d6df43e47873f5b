// SPDX-License-Identifier: Apache-2.0
// A few neighbouring columns of one row, as one value: what an emitted line of arithmetic works on.
// Operators and the functions of math.cuh take Elements<N>, floats (the same for all columns), or a
// mixture; so emitted text reads like the program it comes from.
// Invariant: every loop over elements is unrolled, so that elements are registers.
#pragma once

#include "device/element.cuh"
#include "device/math.cuh"
#include "device/matrix_move.cuh"

namespace coda::device {

template <u32 N>
struct Elements {
  float value[N];
};

template <class T>
inline constexpr u32 kElementsOf = 0;
template <u32 N>
inline constexpr u32 kElementsOf<Elements<N>> = N;

__device__ __forceinline__ float element_at(float x, u32) { return x; }
template <u32 N>
__device__ __forceinline__ float element_at(const Elements<N>& x, u32 i) {
  return x.value[i];
}

// `function` of the operands, element by element; at least one has elements.
template <class Function, class... Operands>
__device__ __forceinline__ auto each(Function function, const Operands&... operands) {
  constexpr u32 kCount = [](auto... counts) {
    u32 largest = 0;
    ((largest = larger(largest, counts)), ...);
    return largest;
  }(kElementsOf<Operands>...);
  Elements<kCount> result;
#pragma unroll
  for (u32 i = 0; i < kCount; ++i) result.value[i] = function(element_at(operands, i)...);
  return result;
}

template <class... Operands>
concept HasElements = ((kElementsOf<Operands> != 0) || ...);

template <class A, class B>
  requires HasElements<A, B>
__device__ __forceinline__ auto operator+(const A& a, const B& b) {
  return each([](float x, float y) { return x + y; }, a, b);
}
template <class A, class B>
  requires HasElements<A, B>
__device__ __forceinline__ auto operator-(const A& a, const B& b) {
  return each([](float x, float y) { return x - y; }, a, b);
}
template <class A, class B>
  requires HasElements<A, B>
__device__ __forceinline__ auto operator*(const A& a, const B& b) {
  return each([](float x, float y) { return x * y; }, a, b);
}
template <class A, class B>
  requires HasElements<A, B>
__device__ __forceinline__ auto operator/(const A& a, const B& b) {
  return each([](float x, float y) { return quotient(x, y); }, a, b);
}
template <class A, class B>
  requires HasElements<A, B>
__device__ __forceinline__ auto maximum(const A& a, const B& b) {
  return each([](float x, float y) { return maximum(x, y); }, a, b);
}
template <class A, class B>
  requires HasElements<A, B>
__device__ __forceinline__ auto minimum(const A& a, const B& b) {
  return each([](float x, float y) { return minimum(x, y); }, a, b);
}
template <class A, class B>
  requires HasElements<A, B>
__device__ __forceinline__ auto equal(const A& a, const B& b) {
  return each([](float x, float y) { return equal(x, y); }, a, b);
}
template <class A, class B>
  requires HasElements<A, B>
__device__ __forceinline__ auto less(const A& a, const B& b) {
  return each([](float x, float y) { return less(x, y); }, a, b);
}
template <class A, class B, class C>
  requires HasElements<A, B, C>
__device__ __forceinline__ auto select(const A& a, const B& b, const C& c) {
  return each([](float x, float y, float z) { return select(x, y, z); }, a, b, c);
}
template <u32 N>
__device__ __forceinline__ auto exponential(const Elements<N>& a) {
  return each([](float x) { return exponential(x); }, a);
}
template <u32 N>
__device__ __forceinline__ auto logarithm(const Elements<N>& a) {
  return each([](float x) { return logarithm(x); }, a);
}
template <u32 N>
__device__ __forceinline__ auto reciprocal_root(const Elements<N>& a) {
  return each([](float x) { return reciprocal_root(x); }, a);
}
template <u32 N>
__device__ __forceinline__ auto square_root(const Elements<N>& a) {
  return each([](float x) { return square_root(x); }, a);
}
template <u32 N>
__device__ __forceinline__ auto reciprocal(const Elements<N>& a) {
  return each([](float x) { return reciprocal(x); }, a);
}
template <u32 N>
__device__ __forceinline__ auto sigmoid(const Elements<N>& a) {
  return each([](float x) { return sigmoid(x); }, a);
}
template <u32 N>
__device__ __forceinline__ auto hyperbolic_tangent(const Elements<N>& a) {
  return each([](float x) { return hyperbolic_tangent(x); }, a);
}
template <u32 N>
__device__ __forceinline__ auto error_function(const Elements<N>& a) {
  return each([](float x) { return error_function(x); }, a);
}
template <u32 N>
__device__ __forceinline__ auto negative(const Elements<N>& a) {
  return each([](float x) { return negative(x); }, a);
}
template <u32 N>
__device__ __forceinline__ auto silu(const Elements<N>& a) {
  return each([](float x) { return silu(x); }, a);
}
template <u32 N>
__device__ __forceinline__ auto gelu(const Elements<N>& a) {
  return each([](float x) { return gelu(x); }, a);
}
template <u32 N>
__device__ __forceinline__ auto gelu_tanh(const Elements<N>& a) {
  return each([](float x) { return gelu_tanh(x); }, a);
}

// Two columns as one register of a fragment of 16-bit elements.
template <Element kElement>
__device__ __forceinline__ u32 pack(const Elements<2>& x) {
  return pack<kElement>(x.value[0], x.value[1]);
}
template <Element kElement>
__device__ __forceinline__ Elements<2> unpack(u32 packed) {
  Elements<2> x;
  unpack<kElement>(packed, x.value[0], x.value[1]);
  return x;
}

// What a store to 16 bits and a load would give.
template <Element kElement>
__device__ __forceinline__ Elements<2> rounded(const Elements<2>& x) {
  return unpack<kElement>(pack<kElement>(x));
}

// Two neighbouring elements of a stored tensor, of which the first `valid` exist; the others read
// as zero and are not written. In one access if both exist and the address allows it.
template <Stored kStored>
__device__ __forceinline__ Elements<2> load_pair(u64 tensor, u64 index, u32 valid) {
  Elements<2> x{{0.0f, 0.0f}};
  if (valid == 0) return x;
  if constexpr (kStored == Stored::f32 || kStored == Stored::bf16 || kStored == Stored::f16) {
    constexpr u32 kBytes = kStored == Stored::f32 ? 8 : 4;
    const u64 address = tensor + index * (kBytes / 2);
    if (valid >= 2 && address % kBytes == 0) {
      if constexpr (kStored == Stored::f32) {
        const float2 both = *reinterpret_cast<const float2*>(address);
        return {{both.x, both.y}};
      } else {
        constexpr Element kElement = kStored == Stored::bf16 ? Element::bf16 : Element::fp16;
        return unpack<kElement>(*reinterpret_cast<const u32*>(address));
      }
    }
  }
  x.value[0] = load_element<kStored>(tensor, index);
  if (valid >= 2) x.value[1] = load_element<kStored>(tensor, index + 1);
  return x;
}

template <Stored kStored>
__device__ __forceinline__ void store_pair(u64 tensor, u64 index, u32 valid,
                                           const Elements<2>& x) {
  if (valid == 0) return;
  if constexpr (kStored == Stored::f32 || kStored == Stored::bf16 || kStored == Stored::f16) {
    constexpr u32 kBytes = kStored == Stored::f32 ? 8 : 4;
    const u64 address = tensor + index * (kBytes / 2);
    if (valid >= 2 && address % kBytes == 0) {
      if constexpr (kStored == Stored::f32) {
        *reinterpret_cast<float2*>(address) = make_float2(x.value[0], x.value[1]);
      } else {
        constexpr Element kElement = kStored == Stored::bf16 ? Element::bf16 : Element::fp16;
        *reinterpret_cast<u32*>(address) = pack<kElement>(x);
      }
      return;
    }
  }
  store_element<kStored>(tensor, index, x.value[0]);
  if (valid >= 2) store_element<kStored>(tensor, index + 1, x.value[1]);
}

// Adds to fp32 in memory, at the memory: each element is added to once, so the result is the same
// in any order.
__device__ __forceinline__ void add_pair(u64 tensor, u64 index, u32 valid, const Elements<2>& x) {
  if (valid == 0) return;
  const u64 address = tensor + index * 4;
  if (valid >= 2 && address % 8 == 0) {
    asm volatile("red.global.add.v2.f32 [%0], {%1, %2};" ::"l"(address), "f"(x.value[0]),
                 "f"(x.value[1])
                 : "memory");
    return;
  }
  asm volatile("red.global.add.f32 [%0], %1;" ::"l"(address), "f"(x.value[0]) : "memory");
  if (valid >= 2) {
    asm volatile("red.global.add.f32 [%0], %1;" ::"l"(address + 4), "f"(x.value[1]) : "memory");
  }
}

// How many of two neighbouring columns are inside.
constexpr u32 inside_pair(u32 column, u32 columns) {
  return column + 1 < columns ? 2u : column < columns ? 1u : 0u;
}

}  // namespace coda::device
