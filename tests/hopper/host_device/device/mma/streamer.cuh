// SPDX-License-Identifier: Apache-2.0
// device/mma/streamer.cuh on a CPU: no emitted kernel has one.
#pragma once

#include "device/layout/shared_layout.cuh"

namespace coda::device {

template <GemmConfig kConfig, EpilogueTraits kTraits>
struct Streamer {
  u32 buffers;
  u32 barriers;
  u32 progress;
};

}  // namespace coda::device
