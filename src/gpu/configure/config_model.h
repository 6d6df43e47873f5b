// SPDX-License-Identifier: Apache-2.0
// A cost model for GEMM kernels. A tile costs the time of its mainloop (the slower of tensor cores
// and operand bandwidth) plus the part of its epilogue that the schedule exposes, which is all of
// it if there is only one wave. A launch costs its tiles in whole waves. Only ratios between
// configurations matter. The inputs are a few numbers, so the model can also be evaluated for other
// sizes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "gpu/target/target.h"

namespace coda::gpu {

// The extents of a tile space: rows, base columns, and the total contraction.
struct SpaceExtents {
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t k = 0;

  friend bool operator==(const SpaceExtents&, const SpaceExtents&) = default;
};

// The work of a tile space.
struct SpaceWork {
  device::EpilogueTraits shape;
  SpaceExtents extents;
  double planes = 0;      // planes of 16-bit elements that the epilogue moves
  double operations = 0;  // operations per element
};

// Predicted cycles; `kind` must be the TileKind of `config`.
double model_cost(const Target& target, std::span<const SpaceWork> spaces,
                  const device::GemmConfig& config, const TileKind& kind, uint32_t multiprocessors);

// Number of tiles of a space, rounded up to whole clusters.
int64_t cluster_tiles(const SpaceWork& space, const device::GemmConfig& config);
// Number of clusters that run concurrently.
int64_t clusters_of(const device::GemmConfig& config, uint32_t multiprocessors);

}  // namespace coda::gpu
