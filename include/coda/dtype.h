// SPDX-License-Identifier: Apache-2.0
// Storage types of tensors. Arithmetic is fp32 everywhere (fp64 in the reference); a type says how
// a value is stored.
#pragma once

#include <cstdint>
#include <string_view>

#include "coda/api.h"

namespace CODA_API coda {

// e4m3 and e5m2 are 8-bit floats, see float8.h. i32 holds indices and row numbers. u8 holds masks,
// integers from 0 to 255: comparisons give 0 or 1, and where() takes any value except 0 as true.
// Stores to u8 round to nearest even, clamp to [0, 255] and turn NaN into 0.
enum class DType : uint8_t { f32, bf16, f16, f64, i32, e4m3, e5m2, u8 };

inline constexpr DType kDTypes[] = {DType::f32, DType::bf16, DType::f16,  DType::f64,
                                    DType::i32, DType::e4m3, DType::e5m2, DType::u8};

// Other types have no gradient.
constexpr bool is_floating(DType type) { return type != DType::i32 && type != DType::u8; }

// Bytes of one element.
constexpr int64_t size_of(DType type) {
  switch (type) {
    case DType::f32: return 4;
    case DType::bf16: return 2;
    case DType::f16: return 2;
    case DType::f64: return 8;
    case DType::i32: return 4;
    case DType::e4m3: return 1;
    case DType::e5m2: return 1;
    case DType::u8: return 1;
  }
  return 0;
}

constexpr std::string_view name_of(DType type) {
  switch (type) {
    case DType::f32: return "f32";
    case DType::bf16: return "bf16";
    case DType::f16: return "f16";
    case DType::f64: return "f64";
    case DType::i32: return "i32";
    case DType::e4m3: return "e4m3";
    case DType::e5m2: return "e5m2";
    case DType::u8: return "u8";
  }
  return "?";
}

}  // namespace CODA_API coda
