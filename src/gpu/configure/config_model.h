// SPDX-License-Identifier: Apache-2.0
// What a kernel with products costs, by a model: a tile's time is its mainloop (tensor cores or
// operand bandwidth, whichever is slower) and as much of its epilogue as its schedule exposes: all
// of it where there is one wave; a launch's time is that of its tiles, dealt out in whole waves.
// Only ratios between configurations matter. It is a function of a few numbers, so that it can be
// asked about other sizes too.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "gpu/target/target.h"

namespace coda::gpu {

// A tile space's sizes: rows, base columns, and all of its contraction.
struct SpaceExtents {
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t k = 0;

  friend bool operator==(const SpaceExtents&, const SpaceExtents&) = default;
};

// What a tile space asks of the machine.
struct SpaceWork {
  device::EpilogueTraits shape;
  SpaceExtents extents;
  double planes = 0;      // of 16 bits that the epilogue moves
  double operations = 0;  // that it computes for each element
};

// Cycles; `kind` is the configuration's.
double model_cost(const Target& target, std::span<const SpaceWork> spaces,
                  const device::GemmConfig& config, const TileKind& kind, uint32_t multiprocessors);

// Tiles of a space in clusters of them.
int64_t cluster_tiles(const SpaceWork& space, const device::GemmConfig& config);
// Clusters that run at once.
int64_t clusters_of(const device::GemmConfig& config, uint32_t multiprocessors);

}  // namespace coda::gpu
