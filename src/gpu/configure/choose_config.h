// SPDX-License-Identifier: Apache-2.0
// Which tile, cluster, depth and schedule a kernel gets. Configurations are data: a list of legal
// ones, which a tuner may time one by one, ranked by a model of lab/notebook/hopper.md's tables.
// Invariant: every configuration gives the same bits.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gpu/configure/config_model.h"
#include "gpu/legalise/space_analysis.h"

namespace coda::gpu {

using device::GemmConfig;

// The spaces of one kernel: they have one layout and one element type.
struct KernelSpaces {
  const Target* target = nullptr;
  std::vector<SpaceAnalysis> spaces;
};

struct RankedChoice {
  GemmConfig choice;
  double cost = 0;  // by the model; only ratios matter
  // By a count of its values a thread has too few registers: taken only where it was timed.
  bool is_crowded = false;
};

// Best first by the model; empty if nothing fits.
std::vector<RankedChoice> rank_choices(const ProgramSizes& sizes, const program::TileMap& map,
                                       const KernelSpaces& kernel);

// Whether the count leaves hope that one of them has registers enough: else the kernel is not
// tried.
bool has_room(const ProgramSizes& sizes, const KernelSpaces& kernel);

// "vectors of columns 320, accumulators 64 and values of rows 40": what takes most registers of a
// thread, with the tile that leaves most of them.
std::string largest_register_uses(const ProgramSizes& sizes, const SpaceAnalysis& space);

// What the model is told of the kernel, by space.
std::vector<SpaceWork> work_of(const ProgramSizes& sizes, const program::TileMap& map,
                               const KernelSpaces& kernel);
double model_cost(const Target& target, std::span<const SpaceWork> spaces, const GemmConfig& choice,
                  uint32_t multiprocessors);

// Whether the kernel can be made so: tile shape and shared memory. Whether its values have room in
// registers only the compiler knows.
bool is_legal(const KernelSpaces& kernel, const GemmConfig& choice);

// CTAs of the launch: persistent, and no more than give each the same number of tiles.
uint32_t grid_of(const ProgramSizes& sizes, const program::TileMap& map, const KernelSpaces& kernel,
                 const GemmConfig& choice);

// "128x256 cooperative, cluster 2x1, 3 stages".
std::string text(const GemmConfig& choice);

// The same in short, "128x256c21s3", and back; nothing if it is none that kernels may have.
std::string code(const GemmConfig& choice);
std::optional<GemmConfig> parse_choice(const std::string& code_text,
                                       const Target& target = chosen_target());

}  // namespace coda::gpu
