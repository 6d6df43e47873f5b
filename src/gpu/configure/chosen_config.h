// SPDX-License-Identifier: Apache-2.0
// Which configurations a kernel is made with, in what order, and why: what was asked for, what
// `coda tune` measured on this machine, what the shipped table has measured, or what the model
// ranks first. Whoever makes kernels asks here, so all agree. The first is taken unless the
// compiler spills registers there; then the next is.
#pragma once

#include "gpu/configure/tuned_rows.h"

namespace coda::gpu {

enum class ChoiceSource : uint8_t { asked, tuned, table, model };

struct ChosenConfig {
  GemmConfig choice;
  ChoiceSource source = ChoiceSource::model;
  std::string measured_at{};          // extents of the row that it comes from
  std::vector<GemmConfig> spilled{};  // that come before it, if the compiler was asked
};

// Of the configurations that are legal for the kernel, the best first; one that was asked for is
// alone. Never empty. Of each tile and schedule there is one, because registers spill by these:
// clusters and stages add two or three.
std::vector<ChosenConfig> config_order(const ProgramSizes& sizes, const program::TileMap& map,
                                       const KernelSpaces& kernel);

// "tuned at 16384x4096x4096", "the shipped table at ...; registers spill with 128x256c21s3".
std::string text(const ChosenConfig& chosen);

}  // namespace coda::gpu
