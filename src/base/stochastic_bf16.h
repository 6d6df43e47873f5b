// SPDX-License-Identifier: Apache-2.0
// Stochastic rounding of fp32 to bf16, exactly unbiased for u that is uniform in [0, 1) in steps of
// at most 2^-16. The device has the same in device/values/philox.cuh.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace coda {

// One of the two bf16 numbers around x: the one farther from 0 if the discarded 16 bits plus the
// first 16 bits of u reach 1. Numbers that bf16 has, infinities and NaN are returned as they are. A
// u below 0 (or NaN) counts as 0, and one above 1 as just below 1.
inline float stochastic_bf16(float x, float u) {
  if (!std::isfinite(x)) return x;
  const float scaled = u * 0x1p16F;
  const uint32_t noise = !(scaled > 0)     ? 0
                         : scaled >= 65535 ? 65535
                                           : static_cast<uint32_t>(scaled);
  return std::bit_cast<float>((std::bit_cast<uint32_t>(x) + noise) & 0xffff0000U);
}

}  // namespace coda
