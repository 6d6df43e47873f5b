// SPDX-License-Identifier: Apache-2.0
// A few neighbouring columns of one row as one value, on which an emitted line of arithmetic works.
// Operators and the functions of math.cuh accept Elements<N>, floats (equal for all columns), or
// mixtures, so that emitted text reads like the program.
// Invariant: every loop over elements is unrolled, so that elements are registers.
#pragma once

#include "device/element.cuh"
#include "device/ptx/matrix_move.cuh"
#include "device/ptx/memory_moves.cuh"
#include "device/values/math.cuh"
#include "device/values/philox.cuh"

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

// Applies `function` element by element; at least one operand has elements. Written without a loop,
// because a kernel has thousands of calls and unrolling them would dominate the compile time.
template <u32 kIndex, class Function, class... Operands>
__device__ __forceinline__ float one_of_each(Function function, const Operands&... operands) {
  return function(element_at(operands, kIndex)...);
}
template <class Function, class... Operands>
__device__ __forceinline__ auto each(Function function, const Operands&... operands) {
  constexpr u32 kCount = (kElementsOf<Operands> | ...);
  static_assert(((kElementsOf<Operands> == 0 || kElementsOf<Operands> == kCount) && ...));
  if constexpr (kCount == 2) {
    return Elements<2>{
        {one_of_each<0>(function, operands...), one_of_each<1>(function, operands...)}};
  } else {
    static_assert(kCount == 8);
    return Elements<8>{
        {one_of_each<0>(function, operands...), one_of_each<1>(function, operands...),
         one_of_each<2>(function, operands...), one_of_each<3>(function, operands...),
         one_of_each<4>(function, operands...), one_of_each<5>(function, operands...),
         one_of_each<6>(function, operands...), one_of_each<7>(function, operands...)}};
  }
}

// Overloads for pairs. GEMM kernels contain thousands of operations on pairs; with the general
// template above, inlining them would take a fifth of the compile time.
//
// Kernels are compiled without contraction (--fmad=false). If the compiler chose which product of a
// * b - c * d stays unrounded, two tiles of one program could differ in the last bit. Here the
// types decide: a product knows its factors, and a sum with a product is one fma; of two products
// the first is fused.
struct PairProduct : Elements<2> {  // the base class holds the rounded product
  Elements<2> first;
  Elements<2> second;
};
template <>
inline constexpr u32 kElementsOf<PairProduct> = 2;

__device__ __forceinline__ Elements<2> both(float x) { return {{x, x}}; }

__device__ __forceinline__ PairProduct operator*(Elements<2> a, Elements<2> b) {
  return {{a.value[0] * b.value[0], a.value[1] * b.value[1]}, a, b};
}
__device__ __forceinline__ PairProduct operator*(Elements<2> a, float b) { return a * both(b); }
__device__ __forceinline__ PairProduct operator*(float a, Elements<2> b) { return both(a) * b; }

__device__ __forceinline__ Elements<2> operator+(Elements<2> a, Elements<2> b) {
  return {{a.value[0] + b.value[0], a.value[1] + b.value[1]}};
}
__device__ __forceinline__ Elements<2> operator+(PairProduct a, Elements<2> b) {
  return {{fmaf(a.first.value[0], a.second.value[0], b.value[0]),
           fmaf(a.first.value[1], a.second.value[1], b.value[1])}};
}
__device__ __forceinline__ Elements<2> operator+(Elements<2> a, PairProduct b) { return b + a; }
__device__ __forceinline__ Elements<2> operator+(PairProduct a, PairProduct b) {
  return a + static_cast<Elements<2>>(b);
}
__device__ __forceinline__ Elements<2> operator+(Elements<2> a, float b) { return a + both(b); }
__device__ __forceinline__ Elements<2> operator+(PairProduct a, float b) { return a + both(b); }
__device__ __forceinline__ Elements<2> operator+(float a, Elements<2> b) { return both(a) + b; }
__device__ __forceinline__ Elements<2> operator+(float a, PairProduct b) { return both(a) + b; }

__device__ __forceinline__ Elements<2> opposite(Elements<2> a) {
  return {{-a.value[0], -a.value[1]}};
}
__device__ __forceinline__ Elements<2> operator-(Elements<2> a, Elements<2> b) {
  return {{a.value[0] - b.value[0], a.value[1] - b.value[1]}};
}
__device__ __forceinline__ Elements<2> operator-(PairProduct a, Elements<2> b) {
  return a + opposite(b);
}
__device__ __forceinline__ Elements<2> operator-(Elements<2> a, PairProduct b) {
  return opposite(b.first) * b.second + a;
}
__device__ __forceinline__ Elements<2> operator-(PairProduct a, PairProduct b) {
  return a + opposite(b);
}
__device__ __forceinline__ Elements<2> operator-(Elements<2> a, float b) { return a - both(b); }
__device__ __forceinline__ Elements<2> operator-(PairProduct a, float b) { return a - both(b); }
__device__ __forceinline__ Elements<2> operator-(float a, Elements<2> b) { return both(a) - b; }
__device__ __forceinline__ Elements<2> operator-(float a, PairProduct b) { return both(a) - b; }

// Adds element i to a running sum.
__device__ __forceinline__ float plus_element(float sum, const Elements<2>& x, u32 i) {
  return sum + x.value[i];
}
__device__ __forceinline__ float plus_element(float sum, const PairProduct& x, u32 i) {
  return fmaf(x.first.value[i], x.second.value[i], sum);
}

// Updates a running largest magnitude with element i.
template <class Pair>
__device__ __forceinline__ float larger_element(float largest, const Pair& x, u32 i) {
  return maximum(largest, fabsf(plus_element(0.0f, x, i)));
}

// Two elements that were loaded as 16 bits, which are kept, and the product of two such values. A
// product that is only rounded to 16 bits again is computed in 16 bits, never in fp32.
template <Element kElement>
struct StoredPair : Elements<2> {
  u32 bits;
};
template <Element kElement>
struct StoredProduct : PairProduct {
  u32 first_bits;
  u32 second_bits;
};
template <Element kElement>
inline constexpr u32 kElementsOf<StoredPair<kElement>> = 2;
template <Element kElement>
inline constexpr u32 kElementsOf<StoredProduct<kElement>> = 2;

// The indices of two neighbouring columns; the first is even.
struct ColumnPair : Elements<2> {
  u32 first;
};
template <>
inline constexpr u32 kElementsOf<ColumnPair> = 2;

__device__ __forceinline__ ColumnPair column_pair(u32 first) {
  return {{{static_cast<float>(first), static_cast<float>(first + 1)}}, first};
}

// The indices of eight neighbouring columns; the first is even.
struct ColumnRun : Elements<8> {
  u32 first;
};
template <>
inline constexpr u32 kElementsOf<ColumnRun> = 8;

template <class... Operands>
concept HasElements = ((kElementsOf<Operands> != 0) || ...);

template <Element kElement>
__device__ __forceinline__ StoredProduct<kElement> operator*(const StoredPair<kElement>& a,
                                                             const StoredPair<kElement>& b) {
  return {static_cast<Elements<2>>(a) * static_cast<Elements<2>>(b), a.bits, b.bits};
}

// More than two columns, for kernels without a GEMM, which are limited by memory. Nothing is
// contracted.
template <class... Operands>
concept HasColumns = ((kElementsOf<Operands> > 2) || ...);
template <class A, class B>
  requires HasColumns<A, B>
__device__ __forceinline__ auto operator+(const A& a, const B& b) {
  return each([](float x, float y) { return x + y; }, a, b);
}
template <class A, class B>
  requires HasColumns<A, B>
__device__ __forceinline__ auto operator-(const A& a, const B& b) {
  return each([](float x, float y) { return x - y; }, a, b);
}
template <class A, class B>
  requires HasColumns<A, B>
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
template <class A, class B>
  requires HasElements<A, B>
__device__ __forceinline__ auto less_equal(const A& a, const B& b) {
  return each([](float x, float y) { return less_equal(x, y); }, a, b);
}
template <class A, class B>
  requires HasElements<A, B>
__device__ __forceinline__ auto not_equal(const A& a, const B& b) {
  return each([](float x, float y) { return not_equal(x, y); }, a, b);
}
template <class A, class B>
  requires HasElements<A, B>
__device__ __forceinline__ auto stochastic_bf16(const A& a, const B& b) {
  return each([](float x, float u) { return stochastic_bf16(x, u); }, a, b);
}
template <class A, class B, class C>
  requires HasElements<A, B, C>
__device__ __forceinline__ auto select(const A& a, const B& b, const C& c) {
  return each([](float x, float y, float z) { return select(x, y, z); }, a, b, c);
}
// Two columns that share a block of random words, which is computed once. Its key does not depend
// on the column, because there are fewer than 2^31 columns. The compiler does not know this and
// would otherwise keep the keys of ten rounds in registers.
__device__ __forceinline__ Elements<2> random_number(float seed, float row,
                                                     const ColumnPair& columns) {
  const RandomWords words =
      philox(counter_of(row), columns.first / 2, counter_of(seed) | columns.first >> 31);
  const bool is_inside = is_counter(seed) && is_counter(row);
  return {{random_of(words.value[0], is_inside), random_of(words.value[1], is_inside)}};
}
__device__ __forceinline__ Elements<8> random_number(float seed, float row,
                                                     const ColumnRun& columns) {
  Elements<8> numbers;
#pragma unroll
  for (u32 i = 0; i < 8; i += 2) {
    const Elements<2> two = random_number(seed, row, column_pair(columns.first + i));
    numbers.value[i] = two.value[0];
    numbers.value[i + 1] = two.value[1];
  }
  return numbers;
}
template <class A, class B, class C>
  requires HasElements<A, B, C>
__device__ __forceinline__ auto random_number(const A& a, const B& b, const C& c) {
  return each([](float x, float y, float z) { return random_number(x, y, z); }, a, b, c);
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
__device__ __forceinline__ auto rsqrt(const Elements<N>& a) {
  return each([](float x) { return rsqrt(x); }, a);
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
__device__ __forceinline__ auto absolute(const Elements<N>& a) {
  return each([](float x) { return absolute(x); }, a);
}
template <u32 N>
__device__ __forceinline__ auto relu(const Elements<N>& a) {
  return each([](float x) { return relu(x); }, a);
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
__device__ __forceinline__ auto error_function_plus_one(const Elements<N>& a) {
  return each([](float x) { return error_function_plus_one(x); }, a);
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

// Packs two columns into one register of a fragment of 16-bit elements.
template <Element kElement>
__device__ __forceinline__ u32 pack(const Elements<2>& x) {
  return pack<kElement>(x.value[0], x.value[1]);
}
// An exact fp32 product rounded to 16 bits equals one 16-bit multiplication: two significands of at
// most 11 bits fit into 24.
template <Element kElement>
__device__ __forceinline__ u32 pack(const StoredProduct<kElement>& x) {
  return multiply_packed<kElement>(x.first_bits, x.second_bits);
}
template <Element kElement>
__device__ __forceinline__ StoredPair<kElement> unpack(u32 packed) {
  StoredPair<kElement> x;
  x.bits = packed;
  unpack<kElement>(packed, x.value[0], x.value[1]);
  return x;
}

// The value after a store to 16 bits and a load.
template <Element kElement>
__device__ __forceinline__ float rounded(float x) {
  if constexpr (bytes_of(kElement) == 1) {
    return from_eight_bits<kElement>(to_eight_bits<kElement>(x));
  } else {
    float low;
    float high;
    unpack<kElement>(pack<kElement>(x, x), low, high);
    return low;
  }
}
template <Element kElement>
__device__ __forceinline__ Elements<2> rounded(const Elements<2>& x) {
  if constexpr (bytes_of(kElement) == 1) {
    return {{rounded<kElement>(x.value[0]), rounded<kElement>(x.value[1])}};
  } else {
    return unpack<kElement>(pack<kElement>(x));
  }
}

// Two neighbouring elements of a stored tensor, of which the first `valid` exist; others read as
// zero and are not written. Uses one access if both exist and the address is aligned, which
// `kAligned` guarantees (even columns of rows with an even pitch). Predicated instead of branching,
// so that many are in flight.
template <u32 kBytes, bool kAligned>
struct PairAccess {
  u64 address;
  u32 both;   // in one access
  u32 first;  // else apart
  u32 second;

  __device__ __forceinline__ PairAccess(u64 tensor, u64 index, u32 valid)
      : address(tensor + index * kBytes) {
    const bool aligned = kAligned || address % (2 * kBytes) == 0;
    both = valid >= 2 && aligned ? 1 : 0;
    first = valid >= 1 && both == 0 ? 1 : 0;
    second = !kAligned && valid >= 2 && both == 0 ? 1 : 0;
  }
};

// 16-bit elements in their storage type.
template <bool kAligned = false>
__device__ __forceinline__ u32 load_packed_pair(u64 tensor, u64 index, u32 valid) {
  const PairAccess<2, kAligned> access(tensor, index, valid);
  return load_half_pair(access.address, access.both, access.first, access.second);
}

template <Element kStored, bool kAligned = false>
__device__ __forceinline__ Elements<2> load_pair(u64 tensor, u64 index, u32 valid) {
  if constexpr (kStored == Element::f32) {
    const PairAccess<4, kAligned> access(tensor, index, valid);
    Elements<2> x;
    load_float_pair(x.value, access.address, access.both, access.first, access.second);
    return x;
  } else if constexpr (is_16_bits(kStored)) {
    return unpack<kStored>(load_packed_pair<kAligned>(tensor, index, valid));
  } else if constexpr (bytes_of(kStored) == 1) {
    const PairAccess<1, kAligned> access(tensor, index, valid);
    const u32 two = load_byte_pair(access.address, access.both, access.first, access.second);
    Elements<2> x;
    from_two_eight_bits<kStored>(static_cast<u16>(two), x.value[0], x.value[1]);
    return x;
  } else {
    return {{valid >= 1 ? load_element<kStored>(tensor, index) : 0.0f,
             valid >= 2 ? load_element<kStored>(tensor, index + 1) : 0.0f}};
  }
}

template <Element kStored, bool kAligned = false>
__device__ __forceinline__ void store_pair(u64 tensor, u64 index, u32 valid, const Elements<2>& x) {
  if constexpr (kStored == Element::f32) {
    const PairAccess<4, kAligned> access(tensor, index, valid);
    store_float_pair(access.address, access.both, access.first, access.second, x.value);
  } else if constexpr (is_16_bits(kStored)) {
    const PairAccess<2, kAligned> access(tensor, index, valid);
    store_half_pair(access.address, access.both, access.first, access.second, pack<kStored>(x));
  } else {
    if (valid >= 1) store_element<kStored>(tensor, index, x.value[0]);
    if (valid >= 2) store_element<kStored>(tensor, index + 1, x.value[1]);
  }
}

// Adds to fp32 numbers in memory: each element is added to once, so the order does not affect the
// result. The assembler does not predicate reductions, so the usual case is one branch.
template <bool kAligned = false>
__device__ __forceinline__ void add_pair(u64 tensor, u64 index, u32 valid, const Elements<2>& x) {
  const PairAccess<4, kAligned> access(tensor, index, valid);
  if (access.both != 0) {
    add_two_floats(access.address, x.value);
    return;
  }
#pragma unroll
  for (u32 i = 0; i < 2; ++i) {
    if (i >= valid) continue;
    add_float(access.address + 4 * i, x.value[i]);
  }
}

// The row of a table that an index names. An invalid index reads the last row instead of other
// memory, because a kernel cannot throw.
constexpr u32 table_row(u32 index, u32 rows) { return smaller(index, rows - 1); }

// How many of two neighbouring columns are inside.
constexpr u32 inside_pair(u32 column, u32 columns) {
  return column + 1 < columns ? 2u : column < columns ? 1u : 0u;
}

}  // namespace coda::device
