// SPDX-License-Identifier: Apache-2.0
// The order in which persistent CTAs process tiles. Tiles in flight at the same time should form a
// nearly square block, because then they share the most operand rows in L2. So the rows are cut
// into bands of `band` cluster tiles, a band is processed column by column, and consecutive bands
// run in opposite directions (so that the columns used last are needed first again). If
// `transposed`, columns are cut instead.
// Invariant: `cluster_tile` is a bijection from [0, count) to the cluster tiles.
#pragma once

#include "device/layout/space.cuh"

namespace coda::device {

struct TileOrder {
  u32 rows = 0;     // cluster tiles along M
  u32 columns = 0;  // cluster tiles along N
  u32 band = 1;     // cluster tiles along M (N if transposed) per band
  u32 transposed = 0;

  constexpr u32 count() const { return rows * columns; }

  // Index -> cluster tile, in units of cluster tiles.
  constexpr TileCoord cluster_tile(u32 index) const {
    const TileCoord tile =
        transposed != 0 ? walk(index, columns, rows) : walk(index, rows, columns);
    return transposed != 0 ? TileCoord{.m = tile.n, .n = tile.m} : tile;
  }

  // The position of tile `index`, with bands along the dimension `banded`.
  constexpr TileCoord walk(u32 index, u32 banded, u32 walked) const {
    const u32 per_band = band * walked;
    const u32 which = index / per_band;
    const u32 inside = index - which * per_band;
    const u32 height = smaller(band, banded - which * band);
    const u32 column = inside / height;
    const u32 row = which * band + (inside - column * height);
    return {.m = row, .n = which % 2 == 0 ? column : walked - 1 - column};
  }
};

// For a space of m rows and n base columns.
constexpr TileOrder tile_order(const GemmConfig& config, const EpilogueTraits& shape, u32 m, u32 n,
                               u32 band, bool transposed = false) {
  return {.rows = ceil_div(m, config.tile_m * config.cluster_m),
          .columns = ceil_div(n, base_columns(config, shape) * config.cluster_n),
          .band = larger(1, band),
          .transposed = transposed ? 1u : 0u};
}

// The rank of a CTA in its cluster; M varies fastest.
constexpr u32 cluster_rank(const GemmConfig& config, u32 rank_m, u32 rank_n) {
  return rank_m + rank_n * config.cluster_m;
}

// A CTA's position in its cluster. If the cluster has one row or column, no division is needed.
constexpr u32 rank_along_m(const GemmConfig& config, u32 rank) {
  return config.cluster_n == 1 ? rank : rank % config.cluster_m;
}
constexpr u32 rank_along_n(const GemmConfig& config, u32 rank) {
  return config.cluster_n == 1 ? 0 : rank / config.cluster_m;
}

// First row and base column of the tile that a CTA of the cluster computes. The tile may be
// entirely outside the space: TMA then loads zeros and stores nothing, and the cluster stays
// synchronised.
constexpr TileCoord cta_tile(const GemmConfig& config, const EpilogueTraits& shape,
                             TileCoord cluster_tile, u32 rank) {
  return {.m = (cluster_tile.m * config.cluster_m + rank_along_m(config, rank)) * config.tile_m,
          .n = (cluster_tile.n * config.cluster_n + rank_along_n(config, rank)) *
               base_columns(config, shape)};
}

// Bit masks of the CTAs that need the same A tile (same rows) and the same B tile (same columns).
constexpr u16 multicast_mask_a(const GemmConfig& config, u32 rank) {
  u32 mask = 0;
  for (u32 rank_n = 0; rank_n < config.cluster_n; ++rank_n) {
    mask |= 1u << cluster_rank(config, rank_along_m(config, rank), rank_n);
  }
  return static_cast<u16>(mask);
}
constexpr u16 multicast_mask_b(const GemmConfig& config, u32 rank) {
  u32 mask = 0;
  for (u32 rank_m = 0; rank_m < config.cluster_m; ++rank_m) {
    mask |= 1u << cluster_rank(config, rank_m, rank_along_n(config, rank));
  }
  return static_cast<u16>(mask);
}

// The CTAs that write into this CTA's stages, including itself: those of its row and column. A
// consumer tells each of them when a stage is free. `index` < `stage_writers`.
constexpr u32 stage_writers(const GemmConfig& config) {
  return config.cluster_m + config.cluster_n - 1;
}
constexpr u32 stage_writer(const GemmConfig& config, u32 rank, u32 index) {
  const u32 rank_m = rank_along_m(config, rank);
  const u32 rank_n = rank_along_n(config, rank);
  if (index < config.cluster_n) return cluster_rank(config, rank_m, index);
  const u32 other = index - config.cluster_n;
  return cluster_rank(config, other < rank_m ? other : other + 1, rank_n);
}

}  // namespace coda::device
