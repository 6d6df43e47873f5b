// SPDX-License-Identifier: Apache-2.0
// A loop whose index is a compile-time constant in each iteration, so that arrays indexed by it
// stay in registers.
#pragma once

#include "device/types.cuh"

namespace coda::device {

template <u32 kValue>
struct Constant {
  static constexpr u32 value = kValue;
};

template <u32 kCount, u32 kFirst = 0, class Body>
__device__ __forceinline__ void unrolled(Body body) {
  if constexpr (kFirst < kCount) {
    body(Constant<kFirst>{});
    unrolled<kCount, kFirst + 1>(body);
  }
}

}  // namespace coda::device
