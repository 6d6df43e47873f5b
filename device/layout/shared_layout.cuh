// SPDX-License-Identifier: Apache-2.0
// The layout of a CTA's shared memory: mainloop stages, the epilogue's ring of staging buffers, and
// barriers. The host and the kernel call the same constexpr function, so that sizes agree.
// Invariant: every tile that TMA or wgmma accesses starts at a multiple of 1024 bytes, the period
// of the 128-byte swizzle.
#pragma once

#include "device/layout/fragment.cuh"

namespace coda::device {

inline constexpr u32 kSharedMemoryPerBlock = 232448;  // sm_90, opted in
inline constexpr u32 kSharedAlignment = 1024;
inline constexpr u32 kBarrierBytes = 8;

// Slots for tile numbers that the scheduler passes to a CTA's roles
// (device/sm90/tile_scheduler.cuh): the largest distance between two roles, in tiles, plus one.
inline constexpr u32 kTileSlots = 4;
inline constexpr u32 kSchedulerBytes = kTileSlots * (2 * kBarrierBytes + 4);

// The shared memory that the epilogues of a kernel's spaces need: the maximum of each field.
struct RingShape {
  u32 planes = 0;  // of a sub-tile, 64 rows of 16-bit elements each
  u32 plane_bytes = kSubTileBytes;
  u32 loads = 0;      // number of planes with loads
  u32 sub_tiles = 1;  // per staged tile
  u32 column_partials = 0;
};

constexpr RingShape merged(const RingShape& a, const RingShape& b) {
  return {.planes = larger(a.planes, b.planes),
          .plane_bytes = larger(a.plane_bytes, b.plane_bytes),
          .loads = larger(a.loads, b.loads),
          .sub_tiles = larger(a.sub_tiles, b.sub_tiles),
          .column_partials = larger(a.column_partials, b.column_partials)};
}

constexpr RingShape ring_shape(const GemmConfig& config, const EpilogueTraits& shape) {
  return {.planes = shape.planes(),
          .plane_bytes = plane_bytes(config, shape),
          .loads = shape.load_planes(),
          .sub_tiles = shape.staged() ? sub_tiles(config, shape) : 1,
          .column_partials = shape.column_partials};
}

// Warps pass column partials through 64 floats each, in two buffers that sub-tiles use alternately,
// so that one barrier per sub-tile is enough.
inline constexpr u32 kScratchBuffers = 2;
constexpr u32 scratch_bytes(u32 column_partials) {  // one buffer of one warpgroup
  return column_partials * (kWarpgroupSize / kWarpSize) * kSubTileColumns * 4;
}
constexpr u32 scratch_bytes(const RingShape& shape) { return scratch_bytes(shape.column_partials); }

// How the planes of the ring are divided. Usually a group has all planes of a sub-tile. Planes that
// are only stored are not needed while loads arrive. If a cooperative tile's loads would otherwise
// have to wait for its first stores, such planes get slots of their own; a few slots are enough,
// and more groups fit.
struct RingGroups {
  u32 planes = 0;       // per group
  u32 groups = 0;       // 0: does not fit, if there are planes
  u32 slot_planes = 0;  // planes of a slot (a sub-tile's last planes); 0: groups have all planes
  u32 slots = 0;
};

constexpr RingGroups ring_groups(const RingShape& shape, u32 room, u32 sharers) {
  if (shape.planes == 0) return {};
  // At most the planes of a whole tile: more would only delay the first wait of the prefetch. Two
  // cooperative warpgroups take turns in the ring, which is unambiguous only for an even length.
  const auto rounded = [&](u32 groups) {
    const u32 fewer = smaller(groups, shape.sub_tiles);
    return fewer - fewer % sharers;
  };
  const RingGroups whole{.planes = shape.planes, .groups = rounded(room / shape.planes)};
  const u32 only_stored = shape.planes - shape.loads;
  if (sharers == 1 || whole.groups == 0 || shape.loads == 0 || only_stored == 0) return whole;
  const u32 groups = rounded((room - sharers * only_stored) / shape.loads);
  if (groups <= whole.groups) return whole;
  return {.planes = shape.loads,
          .groups = groups,
          .slot_planes = only_stored,
          .slots = rounded((room - groups * shape.loads) / only_stored)};
}

struct SharedLayout {
  u32 a = 0;
  u32 b = 0;
  u32 ring = 0;
  u32 slots = 0;    // offset of the first
  u32 scratch = 0;  // [warpgroup][buffer]
  u32 barriers = 0;
  u32 tile_slots = 0;
  u32 bytes = 0;
  RingGroups rings;

  bool fitting = false;

  constexpr bool fits() const { return fitting; }
};

constexpr SharedLayout shared_layout(const GemmConfig& config, const RingShape& shape) {
  SharedLayout layout;
  layout.a = 0;
  layout.b = config.stages * config.stage_bytes_a();
  layout.ring = config.stages * config.stage_bytes();

  const u32 scratch = kConsumerWarpgroups * kScratchBuffers * scratch_bytes(shape);
  const u32 most_groups = shape.planes == 0 ? 0 : shape.sub_tiles;
  const u32 barriers = 2 * config.stages + 4 * most_groups;
  const u32 used = layout.ring + scratch + barriers * kBarrierBytes + kSchedulerBytes;
  if (used > kSharedMemoryPerBlock) return layout;

  const u32 sharers = config.schedule == Schedule::cooperative ? kConsumerWarpgroups : 1;
  const RingGroups rings =
      ring_groups(shape, (kSharedMemoryPerBlock - used) / shape.plane_bytes, sharers);
  layout.rings = rings;
  layout.slots = layout.ring + rings.groups * rings.planes * shape.plane_bytes;
  layout.scratch = layout.slots + rings.slots * rings.slot_planes * shape.plane_bytes;
  layout.barriers = layout.scratch + scratch;
  layout.tile_slots = layout.barriers + barriers * kBarrierBytes;
  layout.bytes = layout.tile_slots + kSchedulerBytes;
  layout.fitting = rings.groups != 0 || shape.planes == 0;
  return layout;
}

// For a kernel with one space.
constexpr SharedLayout shared_layout(const GemmConfig& config, const EpilogueTraits& shape) {
  return shared_layout(config, ring_shape(config, shape));
}

}  // namespace coda::device
