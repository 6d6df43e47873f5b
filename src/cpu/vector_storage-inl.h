// SPDX-License-Identifier: Apache-2.0
// Loads and stores of each storage type, for whole or partial vectors. Included once per
// instruction set, hence the toggled guard.
#if defined(CODA_CPU_VECTOR_STORAGE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CODA_CPU_VECTOR_STORAGE_INL_H_
#undef CODA_CPU_VECTOR_STORAGE_INL_H_
#else
#define CODA_CPU_VECTOR_STORAGE_INL_H_
#endif

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "base/byte_number.h"
#include "base/vector_convert-inl.h"
#include "coda/dtype.h"
#include "coda/float8.h"

HWY_BEFORE_NAMESPACE();
namespace coda::cpu::HWY_NAMESPACE {

constexpr int64_t kMaxLanes = 16;

struct AsF32 {
  using T = float;
  static Vec load(const float* p) { return hn::LoadU(F32(), p); }
  static void store(Vec v, float* p) { hn::StoreU(v, F32(), p); }
};
struct AsI32 {
  using T = int32_t;
  static Vec load(const int32_t* p) { return hn::ConvertTo(F32(), hn::LoadU(I32(), p)); }
  static void store(Vec v, int32_t* p) { hn::StoreU(hn::NearestInt(v), I32(), p); }
};
struct AsBf16 {
  using T = uint16_t;
  static Vec load(const uint16_t* p) { return float_of_bf16_bits(load_u16(p)); }
  static void store(Vec v, uint16_t* p) { store_u16(bf16_bits(v), p); }
};
struct AsF16 {
  using T = uint16_t;
  static Vec load(const uint16_t* p) { return float_of_f16_bits(load_u16(p)); }
  static void store(Vec v, uint16_t* p) { store_u16(f16_bits(v), p); }
};
// Types that are rare in CPU programs: converted one by one.
template <class Stored, auto kFloatOf, auto kOfFloat>
struct OneByOne {
  using T = Stored;
  static Vec load(const T* p) {
    alignas(64) float buffer[kMaxLanes];
    for (size_t i = 0; i < hn::Lanes(F32()); ++i) buffer[i] = kFloatOf(p[i]);
    return hn::Load(F32(), buffer);
  }
  static void store(Vec v, T* p) {
    alignas(64) float buffer[kMaxLanes];
    hn::Store(v, F32(), buffer);
    for (size_t i = 0; i < hn::Lanes(F32()); ++i) p[i] = kOfFloat(buffer[i]);
  }
};
using AsF64 = OneByOne<double, [](double x) { return static_cast<float>(x); },
                       [](float x) { return double{x}; }>;
using AsE4m3 = OneByOne<uint8_t, float_from_e4m3, e4m3_from_float>;
// Masks; only their loads are fast.
struct AsU8 : OneByOne<uint8_t, float_from_byte, byte_from_float> {
  static Vec load(const uint8_t* p) {
    const hn::Rebind<uint8_t, F32> bytes;
    return hn::ConvertTo(F32(), hn::PromoteTo(I32(), hn::LoadU(bytes, p)));
  }
};
using AsE5m2 = OneByOne<uint8_t, float_from_e5m2, e5m2_from_float>;

// The value as it is read back after being stored.
template <class As>
Vec stored(Vec v) {
  typename As::T memory[kMaxLanes];
  As::store(v, memory);
  return As::load(memory);
}

// Two neighbouring vectors. The high halves of bf16's bits are selected from both at once.
template <class As>
HWY_INLINE void store_two(Vec v0, Vec v1, typename As::T* p) {
#if HWY_TARGET != HWY_SCALAR
  if constexpr (std::is_same_v<As, AsBf16>) {
    const hn::Repartition<uint16_t, F32> d;
    const auto low = hn::BitCast(d, rounded_to_bf16(v0));
    const auto high = hn::BitCast(d, rounded_to_bf16(v1));
    return hn::StoreU(hn::ConcatOdd(d, high, low), d, p);
  }
#endif
  As::store(v0, p);
  As::store(v1, p + hn::Lanes(F32()));
}

// The first n elements, fewer than a vector, through a small buffer: nothing after them is
// accessed, and the same code converts every element. The other lanes are converted zeros.
template <class As>
Vec load_part(const typename As::T* p, int64_t n) {
  typename As::T in[kMaxLanes] = {};
  std::memcpy(in, p, n * sizeof(typename As::T));
  return As::load(in);
}

template <class As>
void store_part(Vec v, typename As::T* p, int64_t n) {
  typename As::T out[kMaxLanes];
  As::store(v, out);
  std::memcpy(p, out, n * sizeof(typename As::T));
}

template <class Function>
auto with_type(DType dtype, const Function& function) {
  switch (dtype) {
    case DType::f32: break;
    case DType::bf16: return function(AsBf16());
    case DType::f16: return function(AsF16());
    case DType::f64: return function(AsF64());
    case DType::i32: return function(AsI32());
    case DType::e4m3: return function(AsE4m3());
    case DType::e5m2: return function(AsE5m2());
    case DType::u8: return function(AsU8());
  }
  return function(AsF32());
}

}  // namespace coda::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggled guard
