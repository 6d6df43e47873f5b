// SPDX-License-Identifier: Apache-2.0
// A position in a ring of shared-memory stages: a stage and the parity of its phase, which flips
// each time the ring wraps. Constexpr, so that skipping (a ping-pong warpgroup skips the other's
// tile) is tested on the host against single steps.
// Invariant: stage < kStages; phase is 0 or 1.
#pragma once

#include "device/types.cuh"

namespace coda::device {

template <u32 kStages>
struct PipelineState {
  u32 stage = 0;
  u32 phase = 0;

  constexpr void advance() {
    if (++stage == kStages) {
      stage = 0;
      phase ^= 1;
    }
  }

  constexpr void advance_by(u32 steps) {
    const u32 next = stage + steps;
    phase ^= (next / kStages) & 1;
    stage = next % kStages;
  }

  constexpr bool operator==(const PipelineState&) const = default;
};

}  // namespace coda::device
