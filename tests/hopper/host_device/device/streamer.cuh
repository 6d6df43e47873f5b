// SPDX-License-Identifier: Apache-2.0
// device/streamer.cuh on a CPU: no emitted kernel has one.
#pragma once

#include "device/shared_layout.cuh"

namespace coda::device {

template <GemmConfig kConfig, SpaceShape kShape>
struct Streamer {
  u32 buffers;
  u32 barriers;
  u32 progress;
};

}  // namespace coda::device
