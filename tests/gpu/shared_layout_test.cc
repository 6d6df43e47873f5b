// SPDX-License-Identifier: Apache-2.0
// Shared memory is divided without overlap, within the limit, on the boundaries that TMA and wgmma
// need; and the budgets that the documentation states hold.
#include "device/layout/shared_layout.cuh"

#include <gtest/gtest.h>

#include "tests/gpu/table_configs.h"

namespace coda::device {
namespace {

TEST(SharedLayout, PartsFollowEachOtherOnSwizzlePeriods) {
  for (GemmConfig config : valid_configs()) {
    for (config.stages = 2; config.stages <= 8; ++config.stages) {
      for (u32 loads = 0; loads <= 3; ++loads) {
        for (u32 stores = 1; stores <= 4; ++stores) {
          const EpilogueTraits shape{.loads = loads, .stores = stores};
          const SharedLayout layout = shared_layout(config, shape);
          if (!layout.fits()) continue;
          EXPECT_EQ(layout.a % kSharedAlignment, 0u);
          EXPECT_EQ(layout.b % kSharedAlignment, 0u);
          EXPECT_EQ(layout.ring % kSharedAlignment, 0u);
          EXPECT_EQ(layout.barriers % kBarrierBytes, 0u);
          EXPECT_GE(layout.b, layout.a + config.stages * config.stage_bytes_a());
          EXPECT_GE(layout.ring, layout.b + config.stages * config.stage_bytes_b());
          const RingGroups& rings = layout.rings;
          EXPECT_EQ(rings.planes + rings.slot_planes, shape.planes());
          EXPECT_EQ(rings.slots != 0, rings.slot_planes != 0);
          EXPECT_LE(shape.loads, rings.planes);
          EXPECT_EQ(layout.slots, layout.ring + rings.groups * rings.planes * kSubTileBytes);
          EXPECT_GE(layout.scratch, layout.slots + rings.slots * rings.slot_planes * kSubTileBytes);
          EXPECT_GE(layout.barriers, layout.scratch);
          const u32 barriers = 2 * config.stages + 3 * rings.groups + rings.slots;
          EXPECT_GE(layout.bytes, layout.barriers + barriers * kBarrierBytes);
          EXPECT_LE(layout.bytes, kSharedMemoryPerBlock);
          if (config.schedule == Schedule::cooperative) {
            EXPECT_EQ(rings.groups % 2, 0u);
            EXPECT_EQ(rings.slots % 2, 0u);
          } else {
            EXPECT_EQ(rings.slots, 0u);
          }
        }
      }
    }
  }
}

TEST(SharedLayout, StatedBudgets) {
  const GemmConfig ping_pong{.tile_m = 128, .tile_n = 128, .stages = 6};
  EXPECT_EQ(shared_layout(ping_pong, EpilogueTraits{}).rings.groups, sub_tiles(ping_pong, {}));
  GemmConfig cooperative{
      .tile_m = 128, .tile_n = 256, .stages = 3, .schedule = Schedule::cooperative};
  EXPECT_EQ(shared_layout(cooperative, EpilogueTraits{}).rings.groups, sub_tiles(cooperative, {}));
  cooperative.stages = 4;
  EXPECT_EQ(shared_layout(cooperative, EpilogueTraits{}).rings.groups, 4u);
  EXPECT_FALSE(shared_layout(cooperative, EpilogueTraits{.loads = 2, .stores = 3}).fits());
  // One tile for both warpgroups: all of its output in the ring, beside as many stages as
  // ping-pong.
  GemmConfig shared{.tile_m = 128, .tile_n = 128, .stages = 6, .schedule = Schedule::cooperative};
  EXPECT_EQ(shared_layout(shared, EpilogueTraits{}).rings.groups, sub_tiles(shared, {}));
  shared.stages = 5;
  EXPECT_EQ(shared_layout(shared, EpilogueTraits{.loads = 1, .stores = 2}).rings.groups, 4u);
  shared.stages = 4;
  EXPECT_EQ(shared_layout(shared, EpilogueTraits{.loads = 2, .stores = 3}).rings.groups, 4u);
}

// A residual and two outputs: all eight sub-tiles of 128x256 are loaded under the mainloop, where
// whole groups would be four.
TEST(SharedLayout, WhatIsOnlyStoredHasSlotsWhereMoreGroupsFit) {
  const EpilogueTraits residual{.loads = 1, .stores = 2};
  GemmConfig config{.tile_m = 128, .tile_n = 256, .stages = 3, .schedule = Schedule::cooperative};
  const auto rings = [&](const EpilogueTraits& shape) {
    return shared_layout(config, shape).rings;
  };
  EXPECT_EQ(rings(residual).groups, 8u);
  EXPECT_EQ(rings(residual).slots, 2u);
  // Nothing to win: without loads, and where all that is stored was loaded.
  EXPECT_EQ(rings({.loads = 0, .stores = 2}).slots, 0u);
  EXPECT_EQ(rings({.loads = 2, .stores = 2}).slots, 0u);
  // A ping-pong tile's waits are hidden.
  config = {.tile_m = 128, .tile_n = 128, .stages = 6};
  EXPECT_EQ(rings(residual).groups, 2u);
  EXPECT_EQ(rings(residual).slots, 0u);
}

// Two products of 96 columns: planes of 4 KB, so two groups where whole sub-tiles would get one.
TEST(SharedLayout, HalfSubTilesTakeHalfTheRoom) {
  const GemmConfig config{.tile_m = 128, .tile_n = 192, .stages = 5};
  const EpilogueTraits shape{.parts = 2, .stores = 3};
  const SharedLayout layout = shared_layout(config, shape);
  EXPECT_EQ(layout.rings.groups, 2u);
  EXPECT_EQ(layout.scratch - layout.ring, 2 * 3 * kSubTileBytes / 2);
  EXPECT_EQ(shared_layout(config, EpilogueTraits{.stores = 3}).rings.groups, 1u);
}

TEST(Config, RefusesWhatCannotRun) {
  EXPECT_TRUE(is_valid({}));
  EXPECT_FALSE(is_valid({.tile_n = 160}));                 // partials are of 64 columns
  EXPECT_FALSE(is_valid({.tile_m = 192, .tile_n = 192}));  // 288 accumulators a thread
  EXPECT_FALSE(is_valid({.tile_m = 192, .schedule = Schedule::cooperative}));  // 96 rows each
  EXPECT_FALSE(is_valid({.stages = 1}));
  EXPECT_FALSE(is_valid({.consumer_registers = 248}));  // more than the register file
}

}  // namespace
}  // namespace coda::device
