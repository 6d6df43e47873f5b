// SPDX-License-Identifier: Apache-2.0
// Whole numbers of a byte, as coda/dtype.h has u8: what a store rounds to, and what a load reads.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace coda {

inline float float_from_byte(uint8_t byte) { return static_cast<float>(byte); }

inline uint8_t byte_from_float(float value) {
  if (std::isnan(value)) return 0;
  return static_cast<uint8_t>(std::nearbyint(std::clamp(value, 0.0F, 255.0F)));
}

}  // namespace coda
