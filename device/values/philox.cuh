// SPDX-License-Identifier: Apache-2.0
// Counter-based random numbers, the same bits as src/base/philox.h has them.
#pragma once

#include "device/values/math.cuh"

namespace coda::device {

__device__ __forceinline__ float random_number(float seed, float row, float column) {
  constexpr float kEnd = 4294967296.0f;
  const bool is_inside =
      seed >= 0.0f && seed < kEnd && row >= 0.0f && row < kEnd && column >= 0.0f && column < kEnd;
  u32 counter[4] = {static_cast<u32>(is_inside ? row : 0.0f),
                    static_cast<u32>(is_inside ? column : 0.0f), 0, 0};
  u32 key[2] = {static_cast<u32>(is_inside ? seed : 0.0f), 0};
#pragma unroll
  for (u32 round = 0; round < 10; ++round) {
    const u64 first = static_cast<u64>(0xD2511F53u) * counter[0];
    const u64 second = static_cast<u64>(0xCD9E8D57u) * counter[2];
    counter[0] = static_cast<u32>(second >> 32) ^ counter[1] ^ key[0];
    counter[1] = static_cast<u32>(second);
    counter[2] = static_cast<u32>(first >> 32) ^ counter[3] ^ key[1];
    counter[3] = static_cast<u32>(first);
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return is_inside ? static_cast<float>(counter[0] >> 8) * 5.9604644775390625e-8f
                   : kInfinity - kInfinity;
}

}  // namespace coda::device
