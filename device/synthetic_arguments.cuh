// SPDX-License-Identifier: Apache-2.0
// What a launch passes to the synthetic epilogue and to the streamer beside it.
#pragma once

#include "device/types.cuh"

namespace coda::device {

inline constexpr u32 kMaxSyntheticPlanes = 4;

struct SyntheticArguments {
  TensorMap loads[kMaxSyntheticPlanes];
  TensorMap stores[kMaxSyntheticPlanes];
  const u8* stream_source = nullptr;
  u8* stream_destination = nullptr;
};

}  // namespace coda::device
