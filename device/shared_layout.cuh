// SPDX-License-Identifier: Apache-2.0
// How one CTA's shared memory is divided: mainloop stages, the epilogue's ring of staging buffers,
// and barriers. One constexpr function, so that the host asks for as many bytes as the kernel uses.
// Invariant: every tile that TMA or wgmma touches starts at a multiple of 1024 bytes, the period of
// the 128-byte swizzle.
#pragma once

#include "device/fragment.cuh"

namespace coda::device {

inline constexpr u32 kSharedMemoryPerBlock = 232448;  // sm_90, opted in
inline constexpr u32 kSharedAlignment = 1024;
inline constexpr u32 kBarrierBytes = 8;

// What an epilogue moves for each sub-tile, in planes of one sub-tile. A store reuses the plane of
// the load with its number.
struct EpilogueShape {
  u32 loads = 0;
  u32 stores = 1;
  // Planes that a streamer moves for each sub-tile, apart from the epilogue: the floor that any
  // kernel has which must move as many bytes.
  u32 streamed_loads = 0;
  u32 streamed_stores = 0;

  constexpr u32 planes() const { return larger(loads, stores); }
  constexpr bool streams() const { return streamed_loads + streamed_stores != 0; }
};

inline constexpr u32 kStreamBuffers = 2;

struct SharedLayout {
  u32 a = 0;
  u32 b = 0;
  u32 ring = 0;
  u32 stream = 0;
  u32 barriers = 0;
  u32 progress = 0;  // tiles begun, for the streamer
  u32 bytes = 0;
  u32 groups = 0;  // groups of planes in the ring; 0: does not fit

  constexpr bool fits() const { return groups != 0 && bytes <= kSharedMemoryPerBlock; }
};

constexpr SharedLayout shared_layout(const GemmConfig& config, const EpilogueShape& shape) {
  SharedLayout layout;
  layout.a = 0;
  layout.b = config.stages * config.stage_bytes_a();
  layout.ring = config.stages * config.stage_bytes();

  const u32 stream_bytes = shape.streams() ? kStreamBuffers * kSubTileBytes : 0;
  const u32 most_groups = sub_tiles(config);
  const u32 barriers = 2 * config.stages + 3 * most_groups + kStreamBuffers;
  const u32 tail = barriers * kBarrierBytes + 16;
  const u32 used = layout.ring + stream_bytes + tail;
  const u32 group_bytes = larger(1, shape.planes()) * kSubTileBytes;
  if (used + group_bytes > kSharedMemoryPerBlock) return layout;

  // A whole tile's planes at most: more would only delay the prefetch's first wait. Two cooperative
  // warpgroups take turns in the ring, which is unambiguous only if its length is even.
  u32 groups = smaller((kSharedMemoryPerBlock - used) / group_bytes, most_groups);
  if (config.schedule == Schedule::cooperative) groups -= groups % 2;
  layout.groups = groups;
  layout.stream = layout.ring + groups * group_bytes;
  layout.barriers = layout.stream + stream_bytes;
  layout.progress = layout.barriers + barriers * kBarrierBytes;
  layout.bytes = layout.progress + 16;
  return layout;
}

}  // namespace coda::device
