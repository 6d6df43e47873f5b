// SPDX-License-Identifier: Apache-2.0
// Lists the legal configurations (tile, cluster, stages, schedule) of a kernel, ranked by a cost
// model fitted to the tables in lab/notebook/hopper.md. A tuner may time them one by one.
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

// The tile spaces of one kernel. They have the same layout and element type.
struct KernelSpaces {
  const Target* target = nullptr;
  std::vector<SpaceAnalysis> spaces;
};

struct RankedChoice {
  GemmConfig choice;
  double cost = 0;  // predicted; only ratios matter
  // A thread is estimated to have too few registers; such a configuration is used only if it was
  // timed.
  bool is_crowded = false;
};

// Best first by the model; empty if no configuration fits.
std::vector<RankedChoice> rank_choices(const ProgramSizes& sizes, const program::TileMap& map,
                                       const KernelSpaces& kernel);

// Whether some configuration may have enough registers. If not, the kernel is not attempted.
bool has_room(const ProgramSizes& sizes, const KernelSpaces& kernel);

// "vectors of columns 320, accumulators 64 and values of rows 40": the largest uses of a thread's
// registers, for the tile that leaves most of them free.
std::string largest_register_uses(const ProgramSizes& sizes, const SpaceAnalysis& space);

// The model's inputs for the kernel, for each space.
std::vector<SpaceWork> work_of(const ProgramSizes& sizes, const program::TileMap& map,
                               const KernelSpaces& kernel);
double model_cost(const Target& target, std::span<const SpaceWork> spaces, const GemmConfig& choice,
                  uint32_t multiprocessors);

// Whether tile shape and shared memory allow the configuration. Only the compiler knows whether
// registers suffice.
bool is_legal(const KernelSpaces& kernel, const GemmConfig& choice);

// Number of CTAs: persistent, and no more than needed so that each gets the same number of tiles.
uint32_t grid_of(const ProgramSizes& sizes, const program::TileMap& map, const KernelSpaces& kernel,
                 const GemmConfig& choice);

// "128x256 cooperative, cluster 2x1, 3 stages".
std::string text(const GemmConfig& choice);

// The short form, "128x256c21s3", and its parser; none for an invalid text.
std::string code(const GemmConfig& choice);
std::optional<GemmConfig> parse_choice(const std::string& code_text,
                                       const Target& target = chosen_target());

}  // namespace coda::gpu
