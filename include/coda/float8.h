// SPDX-License-Identifier: Apache-2.0
// Conversions between float and the two 8-bit floats of OCP: e4m3 (3 mantissa bits, up to 448, no
// infinity, NaN is 0x7f and 0xff) and e5m2 (2 mantissa bits, up to 57344, with infinities). Rounds
// to nearest even. Values above the largest number, including infinity, saturate to it and NaN
// becomes 0x7f, as in a GPU's saturating conversion. Subnormals are exact.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "coda/api.h"

namespace CODA_API coda {

struct Float8Format {
  int mantissa;     // bits
  int bias;         // of the exponent
  uint8_t largest;  // code of the largest finite number
  float maximum;    // that number
};
inline constexpr Float8Format kE4m3{.mantissa = 3, .bias = 7, .largest = 0x7e, .maximum = 448};
inline constexpr Float8Format kE5m2{.mantissa = 2, .bias = 15, .largest = 0x7b, .maximum = 57344};

inline float float_from_8_bits(const Float8Format& format, uint8_t bits) {
  const int code = bits & 0x7f;
  const int exponent = code >> format.mantissa;
  const int fraction = code & ((1 << format.mantissa) - 1);
  float magnitude;
  if (code > format.largest) {
    const bool is_infinite = fraction == 0;  // of e4m3 the only code above the largest is NaN
    magnitude = is_infinite ? std::numeric_limits<float>::infinity()
                            : std::numeric_limits<float>::quiet_NaN();
  } else {
    const int whole = exponent == 0 ? fraction : fraction + (1 << format.mantissa);
    magnitude = std::ldexp(static_cast<float>(whole),
                           std::max(exponent, 1) - format.bias - format.mantissa);
  }
  return (bits & 0x80) != 0 ? -magnitude : magnitude;
}

inline uint8_t float_to_8_bits(const Float8Format& format, float value) {
  if (std::isnan(value)) return 0x7f;
  const float magnitude = std::min(std::fabs(value), format.maximum);
  const int own = static_cast<int>(std::bit_cast<uint32_t>(magnitude) >> 23) - 127;
  const int exponent = std::max(own, 1 - format.bias);
  // In units of the last place, below 2^(mantissa + 1). Exact; a carry moves into the exponent.
  const auto units =
      static_cast<int>(std::nearbyint(std::ldexp(magnitude, format.mantissa - exponent)));
  const int code = ((exponent + format.bias - 1) << format.mantissa) + units;
  return static_cast<uint8_t>(code | (std::signbit(value) ? 0x80 : 0));
}

inline float float_from_e4m3(uint8_t bits) { return float_from_8_bits(kE4m3, bits); }
inline uint8_t e4m3_from_float(float value) { return float_to_8_bits(kE4m3, value); }
inline float float_from_e5m2(uint8_t bits) { return float_from_8_bits(kE5m2, bits); }
inline uint8_t e5m2_from_float(float value) { return float_to_8_bits(kE5m2, value); }

}  // namespace CODA_API coda
