// SPDX-License-Identifier: Apache-2.0
// The walk over tiles visits each once, whatever the shape and band; and the CTAs of a cluster
// agree on who loads what for whom.
#include "device/layout/tile_order.cuh"

#include <gtest/gtest.h>

#include <vector>

#include "tests/gpu/table_configs.h"

namespace coda::device {
namespace {

TEST(TileOrder, VisitsEachTileOnce) {
  for (u32 rows = 1; rows <= 19; ++rows) {
    for (u32 columns = 1; columns <= 19; ++columns) {
      for (u32 band = 1; band <= 21; ++band) {
        for (const u32 transposed : {0u, 1u}) {
          const TileOrder order{
              .rows = rows, .columns = columns, .band = band, .transposed = transposed};
          std::vector<int> met(rows * columns);
          for (u32 index = 0; index < order.count(); ++index) {
            const TileCoord tile = order.cluster_tile(index);
            ASSERT_LT(tile.m, rows);
            ASSERT_LT(tile.n, columns);
            ++met[tile.m * columns + tile.n];
          }
          for (const int count : met) ASSERT_EQ(count, 1);
        }
      }
    }
  }
}

// Consecutive bands meet at the same column, so that its operand is still in L2.
TEST(TileOrder, BandsTurnAround) {
  const TileOrder order{.rows = 12, .columns = 7, .band = 4};
  EXPECT_EQ(order.cluster_tile(4 * 7 - 1).n, order.cluster_tile(4 * 7).n);
  EXPECT_EQ(order.cluster_tile(8 * 7 - 1).n, order.cluster_tile(8 * 7).n);
}

TEST(TileOrder, CountsRaggedEdges) {
  const GemmConfig config{.tile_m = 128, .tile_n = 192, .cluster_m = 2};
  const TileOrder order = tile_order(config, EpilogueTraits{}, 257, 193, 0);
  EXPECT_EQ(order.rows, 2u);
  EXPECT_EQ(order.columns, 2u);
  EXPECT_EQ(order.band, 1u);
}

TEST(Cluster, TilesOfAClusterFillItsBlock) {
  for (const GemmConfig& config : valid_configs()) {
    for (const EpilogueTraits& shape : valid_shapes(config)) {
      std::vector<int> met(config.cluster_size());
      const TileCoord cluster{.m = 2, .n = 3};
      for (u32 rank = 0; rank < config.cluster_size(); ++rank) {
        const TileCoord tile = cta_tile(config, shape, cluster, rank);
        const u32 row = tile.m / config.tile_m - cluster.m * config.cluster_m;
        const u32 column = tile.n / base_columns(config, shape) - cluster.n * config.cluster_n;
        ASSERT_LT(row, config.cluster_m);
        ASSERT_LT(column, config.cluster_n);
        ++met[cluster_rank(config, row, column)];
      }
      for (const int count : met) ASSERT_EQ(count, 1);
    }
  }
}

// A stage is free when everyone who writes into it knows: the CTAs that a consumer tells must be
// exactly those whose multicasts reach it, each told once.
TEST(Cluster, StageWritersAreThoseWhoMulticastHere) {
  for (const GemmConfig& config : valid_configs()) {
    for (u32 rank = 0; rank < config.cluster_size(); ++rank) {
      u32 told = 0;
      for (u32 index = 0; index < stage_writers(config); ++index) {
        const u32 writer = stage_writer(config, rank, index);
        ASSERT_LT(writer, config.cluster_size());
        ASSERT_EQ(told & (1u << writer), 0u) << "told twice";
        told |= 1u << writer;
      }
      u32 writers = 0;
      for (u32 other = 0; other < config.cluster_size(); ++other) {
        const u32 reached = multicast_mask_a(config, other) | multicast_mask_b(config, other);
        if ((reached >> rank & 1) != 0) writers |= 1u << other;
      }
      EXPECT_EQ(told, writers);
    }
  }
}

// A row of the cluster shares its A tile and splits it into as many slices as the row has CTAs.
TEST(Cluster, SlicesOfAnOperandFillItsTile) {
  for (const GemmConfig& config : valid_configs()) {
    const auto bytes = [](const OperandBox& box) { return box.outer * box.k * kElementBytes; };
    // The contiguous dimension is one swizzle row, and a slice starts at a multiple of its period.
    const OperandBox a = box_a(config);
    const u32 boxes_a = config.major_a() == Major::k ? 1 : config.tile_m / a.outer;
    EXPECT_EQ(bytes(a) * boxes_a * config.cluster_n, config.stage_bytes_a());
    EXPECT_EQ((config.major_a() == Major::k ? a.k : a.outer) * kElementBytes, kSwizzleBytes);
    EXPECT_EQ(bytes(a) % 1024, 0u);
    EXPECT_LE(a.outer, 256u);
    for (const EpilogueTraits& shape : valid_shapes(config)) {
      const OperandBox b = box_b(config, shape);
      const u32 part = config.tile_n / shape.loaded_parts();
      const u32 boxes_b = config.major_b() == Major::k ? 1 : part / b.outer;
      EXPECT_EQ(bytes(b) * boxes_b * config.cluster_m * shape.loaded_parts(),
                config.stage_bytes_b());
      EXPECT_EQ((config.major_b() == Major::k ? b.k : b.outer) * kElementBytes, kSwizzleBytes);
      EXPECT_EQ(bytes(b) % 1024, 0u);
      EXPECT_LE(b.outer, 256u);
    }
  }
}

}  // namespace
}  // namespace coda::device
