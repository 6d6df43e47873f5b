// SPDX-License-Identifier: Apache-2.0
// Which tile, cluster, depth and schedule a kernel gets. Configurations are data: a list of legal
// ones, which a tuner may time one by one, ranked by a model of docs/performance.md's tables.
// Invariant: every configuration gives the same bits.
#pragma once

#include <vector>

#include "device/shared_layout.cuh"
#include "hopper/space_analysis.h"

namespace coda::hopper {

using GemmChoice = device::GemmConfig;

// The spaces of one kernel: they have one layout and one element type.
struct KernelSpaces {
  std::vector<SpaceAnalysis> spaces;
};

// Best first; empty if nothing fits.
std::vector<GemmChoice> rank_choices(const ProgramSizes& sizes, const program::TileMap& map,
                                     const KernelSpaces& kernel);

// Whether the kernel can be made so: tile shape, shared memory, registers.
bool is_legal(const ProgramSizes& sizes, const KernelSpaces& kernel, const GemmChoice& choice);

// CTAs of the launch: persistent, and no more than give each the same number of tiles.
uint32_t grid_of(const ProgramSizes& sizes, const program::TileMap& map, const KernelSpaces& kernel,
                 const GemmChoice& choice);

// Of the program's first kernel that has products. A choice that another of its kernels cannot take
// is replaced there by the model's.
std::vector<GemmChoice> legal_choices(const Program& program, const DimValues& sizes,
                                      const LowerOptions& options);

// "128x256 cooperative, cluster 2x1, 3 stages".
std::string text(const GemmChoice& choice);

}  // namespace coda::hopper
