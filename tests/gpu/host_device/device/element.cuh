// SPDX-License-Identifier: Apache-2.0
// device/element.cuh on a CPU.
#pragma once

#include <cmath>

#include "base/byte_number.h"
#include "coda/float16.h"
#include "coda/float8.h"
#include "device/types.cuh"

struct float2 {
  float x = 0;
  float y = 0;
};
inline float2 make_float2(float x, float y) { return {x, y}; }

namespace coda::device {

template <Element kStored>
float from_eight_bits(u8 bits) {
  if (kStored == Element::u8) return float_from_byte(bits);
  return kStored == Element::e4m3 ? float_from_e4m3(bits) : float_from_e5m2(bits);
}
template <Element kStored>
void from_two_eight_bits(u16 bits, float& first, float& second) {
  first = from_eight_bits<kStored>(static_cast<u8>(bits));
  second = from_eight_bits<kStored>(static_cast<u8>(bits >> 8));
}
template <Element kStored>
u8 to_eight_bits(float value) {
  if (kStored == Element::u8) return byte_from_float(value);
  return kStored == Element::e4m3 ? e4m3_from_float(value) : e5m2_from_float(value);
}
template <Element kStored>
u16 two_eight_bits(float first, float second) {
  return static_cast<u16>(to_eight_bits<kStored>(first) |
                          static_cast<u16>(to_eight_bits<kStored>(second)) << 8);
}

template <Element kStored>
float load_element(u64 tensor, u64 index) {
  if constexpr (kStored == Element::f32) return reinterpret_cast<const float*>(tensor)[index];
  if constexpr (kStored == Element::f64) {
    return static_cast<float>(reinterpret_cast<const double*>(tensor)[index]);
  }
  if constexpr (kStored == Element::i32) {
    return static_cast<float>(reinterpret_cast<const int*>(tensor)[index]);
  }
  if constexpr (bytes_of(kStored) == 1) {
    return from_eight_bits<kStored>(reinterpret_cast<const u8*>(tensor)[index]);
  }
  const u16 bits = reinterpret_cast<const u16*>(tensor)[index];
  return kStored == Element::bf16 ? float_from_bf16(bits) : float_from_f16(bits);
}

template <Element kStored>
void store_element(u64 tensor, u64 index, float value) {
  static_assert(kStored != Element::i32);
  if constexpr (kStored == Element::f32) {
    reinterpret_cast<float*>(tensor)[index] = value;
  } else if constexpr (kStored == Element::f64) {
    reinterpret_cast<double*>(tensor)[index] = static_cast<double>(value);
  } else if constexpr (bytes_of(kStored) == 1) {
    reinterpret_cast<u8*>(tensor)[index] = to_eight_bits<kStored>(value);
  } else {
    reinterpret_cast<u16*>(tensor)[index] =
        kStored == Element::bf16 ? bf16_from_float(value) : f16_from_float(value);
  }
}

}  // namespace coda::device
